/** Words of a command line as a POSIX shell reads and writes them. Pure. */

const PLAIN = /^[\w@%+=:,./-]+$/;

/** One word, quoted so that a shell passes it unchanged. @param {string} word */
export function quote(word) {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** @param {string[]} words */
export const join = (words) => words.map(quote).join(" ");

/**
 * The words of `text`: blanks separate them, except in quotes and after backslashes. Nothing is expanded.
 *
 * @param {string} text
 * @returns {string[]}
 * @throws {Error} for a quote that is never closed
 */
export function split(text) {
  /** @type {string[]} */
  const words = [];
  /** @type {string | null} null between two words */
  let word = null;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (/\s/.test(character)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (character === "'" || character === '"') {
      const [inner, end] = quoted(text, at);
      word = (word ?? "") + inner;
      at = end;
    } else if (character === "\\" && at + 1 < text.length) {
      at += 1;
      word = (word ?? "") + (text[at] === "\n" ? "" : text[at]);
    } else {
      word = (word ?? "") + character;
    }
  }
  return word === null ? words : [...words, word];
}

/**
 * The text between the quote at `start` and its end, and where that is. Backslashes count in double quotes only.
 *
 * @param {string} text @param {number} start @returns {[inner: string, end: number]}
 */
function quoted(text, start) {
  const mark = text[start];
  let inner = "";
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === mark) return [inner, at];
    if (mark === '"' && text[at] === "\\" && '"\\$`'.includes(text[at + 1] ?? " ")) at += 1;
    inner += text[at];
  }
  throw new Error(`the ${mark === '"' ? "double" : "single"} quote at character ${start + 1} is never closed`);
}
