/**
 * What a terminal would show of a program's output: carriage returns and cursor moves overwrite text, colours become
 * class names, every other escape sequence is removed, and control characters are made visible. Pure: no DOM.
 *
 * Only the last LIVE_ROWS rows can still change (nested progress bars move up a few), so memory stays bounded however
 * long the output is; rows wider than MAX_COLUMNS continue in the next one. A sequence that does not end within its
 * bound is none: its introducer is removed and the rest is text.
 *
 * Each row knows at which byte of the output it started, so that permalinks can refer to it, and in which line.
 *
 * @typedef {{id: number, start: number, line: number | null, cells: string[], styles: string[]}} Row
 * @typedef {{text: string, style: string}} Run
 */

const LIVE_ROWS = 32;
const MAX_COLUMNS = 4000;
const TAB = 8;

/** Control sequence: introducer, parameters, intermediates, final byte. */
const CONTROL = /^(?:\x1b\[|\x9b)([0-?]{0,256})[ -/]{0,16}([@-~])/;
/** Title, hyperlink, clipboard and the like: ended by BEL or ST, never longer than a line. */
const STRING = /^(?:\x1b[\]P_^X]|[\x9d\x90\x9f\x9e\x98])[^\x07\x1b\n\x80-\x9f]{0,2048}(?:\x07|\x1b\\|\x9c)/;
/** Any other escape: intermediates and one final character. */
const ESCAPE = /^\x1b[ -/]{0,16}[0-OQ-WYZ\\`-~]/;
/** The beginning of any of them, cut off where the chunk of text ended. */
const UNFINISHED =
  /^(?:\x1b[ -/]{0,16}|(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}|(?:\x1b[\]P_^X]|[\x9d\x90\x9f\x9e\x98])[^\x07\x1b\n\x80-\x9f]{0,2048}\x1b?)$/;
const encoder = new TextEncoder();
const INTRODUCER = /[\x1b\x80-\x9f]/;

export class TerminalEmulator {
  /** @type {Row[]} */
  #rows = [];
  #at = 0;
  #column = 0;
  #sgr = new SgrState();
  #pending = "";
  #nextId = 0;
  #offset;
  #line;
  /** @type {Set<Row>} */
  #changed = new Set();

  /** @param {number} [offset] bytes of output before the first chunk @param {number | null} [line] its number, null: not known */
  constructor(offset = 0, line = null) {
    this.#offset = offset;
    this.#line = line;
    this.#rows.push(this.#blank(offset));
  }

  /** The number of the line that is written, if it is known. */
  get line() {
    return this.#line;
  }

  /** True between lines: the next output starts a row of its own. */
  get atLineStart() {
    return this.#column === 0 && this.#at === this.#rows.length - 1 && this.#rows[this.#at].cells.length === 0;
  }

  /** @param {number} id of a row @returns {boolean} whether that row can still change */
  isLive(id) {
    return id >= this.#rows[0].id;
  }

  /**
   * @param {string} text the next chunk, cut anywhere
   * @returns {Row[]} the rows that are new or have changed, from top to bottom
   */
  write(text) {
    let rest = this.#pending + text;
    this.#pending = "";
    while (rest) {
      const at = rest.search(INTRODUCER);
      for (const character of at < 0 ? rest : rest.slice(0, at)) this.#put(character);
      rest = at < 0 ? "" : this.#skipSequence(rest.slice(at));
    }
    const changed = [...this.#changed].sort((one, other) => one.id - other.id);
    this.#changed.clear();
    return changed;
  }

  /** @param {string} text that begins with an introducer @returns {string} what follows the sequence */
  #skipSequence(text) {
    const rest = this.#sequence(text);
    if (!this.#pending) this.#offset += encoder.encode(text.slice(0, text.length - rest.length)).length;
    return rest;
  }

  /** @param {string} text that begins with an introducer @returns {string} what follows the sequence */
  #sequence(text) {
    const control = CONTROL.exec(text);
    if (control) this.#control(control[2], control[1]);
    const whole = control ?? STRING.exec(text) ?? ESCAPE.exec(text);
    if (whole) return text.slice(whole[0].length);
    if (UNFINISHED.test(text)) {
      this.#pending = text;
      return "";
    }
    return text.slice(1);
  }

  /** @param {string} final @param {string} parameters */
  #control(final, parameters) {
    const number = Math.min(MAX_COLUMNS, Number.parseInt(parameters, 10) || 0);
    const times = Math.max(1, number);
    if (final === "m") this.#sgr.select(parameters);
    else if (final === "K") this.#erase(number);
    else if (final === "A" || final === "F") this.#move(-times, final === "F");
    else if (final === "B" || final === "E") this.#move(times, final === "E");
    else if (final === "C") this.#column = Math.min(MAX_COLUMNS - 1, this.#column + times);
    else if (final === "D") this.#column = Math.max(0, this.#column - times);
    else if (final === "G") this.#column = Math.min(MAX_COLUMNS, times) - 1;
  }

  /** @param {number} rows @param {boolean} toStart */
  #move(rows, toStart) {
    this.#at = Math.max(0, Math.min(this.#rows.length - 1, this.#at + rows));
    if (toStart) this.#column = 0;
  }

  /** @param {number} part 0: from the cursor on, 1: up to it, 2: the whole row */
  #erase(part) {
    const row = this.#touch();
    if (part === 1) {
      row.cells.fill(" ", 0, this.#column + 1);
      row.styles.fill("", 0, this.#column + 1);
    } else {
      row.cells.length = row.styles.length = Math.min(row.cells.length, part === 2 ? 0 : this.#column);
    }
  }

  /** @param {string} character */
  #put(character) {
    const after = this.#offset + encodedLength(character);
    if (character === "\n") {
      if (this.#line !== null) this.#line += 1;
      this.#newline(after);
    } else if (character === "\r") this.#column = 0;
    else if (character === "\b") this.#column = Math.max(0, this.#column - 1);
    else if (character === "\t") this.#column = Math.min(MAX_COLUMNS - 1, this.#column + TAB - (this.#column % TAB));
    else this.#cell(visible(character));
    this.#offset = after;
  }

  /** @param {string} character */
  #cell(character) {
    if (this.#column >= MAX_COLUMNS) this.#newline(this.#offset);
    const row = this.#touch();
    while (row.cells.length < this.#column) {
      row.cells.push(" ");
      row.styles.push("");
    }
    row.cells[this.#column] = character;
    row.styles[this.#column] = this.#sgr.style;
    this.#column += 1;
  }

  /** @param {number} start where the output of the next row starts */
  #newline(start) {
    this.#touch();
    this.#column = 0;
    this.#at += 1;
    if (this.#at === this.#rows.length) this.#rows.push(this.#blank(start));
    if (this.#rows.length > LIVE_ROWS) {
      this.#rows.shift();
      this.#at -= 1;
    }
  }

  #touch() {
    const row = this.#rows[this.#at];
    this.#changed.add(row);
    return row;
  }

  /** @param {number} start @returns {Row} */
  #blank(start) {
    return { id: this.#nextId++, start, line: this.#line, cells: [], styles: [] };
  }
}

/** Bytes of a character in UTF-8. @param {string} character */
function encodedLength(character) {
  const code = character.codePointAt(0) ?? 0;
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/** A control character in caret notation (NUL is ^@), any other unchanged. @param {string} character */
function visible(character) {
  const code = character.charCodeAt(0);
  return code < 0x20 || code === 0x7f ? `^${String.fromCharCode(code ^ 0x40)}` : character;
}

/** Adjacent cells of one style, joined. @param {Row} row @returns {Run[]} */
export function runs({ cells, styles }) {
  /** @type {Run[]} */
  const joined = [];
  cells.forEach((cell, index) => {
    const last = joined.at(-1);
    if (last && last.style === styles[index]) last.text += cell;
    else joined.push({ text: cell, style: styles[index] });
  });
  return joined;
}

// --- sgr: Select Graphic Rendition: the colours of terminal output as class names from a fixed set, with sixteen
// colours each for text and background, and five attributes. Whatever a log contains, the result is one of these.

/** Red, green and blue of the sixteen colours, to which the 256 and the 16 million are rounded. */
const SIXTEEN = [
  [0, 0, 0], [205, 0, 0], [0, 205, 0], [205, 205, 0], [0, 0, 238], [205, 0, 205], [0, 205, 205], [229, 229, 229],
  [127, 127, 127], [255, 0, 0], [0, 255, 0], [255, 255, 0], [92, 92, 255], [255, 0, 255], [0, 255, 255], [255, 255, 255],
];

/** @param {number[]} colour */
function nearest(colour) {
  const distances = SIXTEEN.map((entry) => entry.reduce((sum, part, index) => sum + (part - colour[index]) ** 2, 0));
  return distances.indexOf(Math.min(...distances));
}

/** @param {number} index of the 256 colours: sixteen, a cube of six levels, 24 greys */
function ofPalette(index) {
  if (index < 16) return index;
  if (index >= 232) return nearest([1, 1, 1].map((one) => one * (8 + (index - 232) * 10)));
  const levels = [Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6];
  return nearest(levels.map((level) => (level ? 55 + level * 40 : 0)));
}

const ATTRIBUTES = new Map([[1, "bold"], [2, "dim"], [3, "italic"], [4, "underline"], [7, "inverse"]]);
const RESETS = new Map([[22, ["bold", "dim"]], [23, ["italic"]], [24, ["underline"]], [27, ["inverse"]]]);

/** The style of the next characters. */
class SgrState {
  /** Class names, separated by spaces. */
  style = "";
  /** @type {Set<string>} */
  #attributes = new Set();
  /** @type {{fg: number | null, bg: number | null}} */
  #colours = { fg: null, bg: null };

  /** @param {string} parameters of a "select graphic rendition" sequence, such as "1;31" */
  select(parameters) {
    const codes = parameters.split(/[;:]/).map((part) => Number.parseInt(part, 10) || 0);
    while (codes.length) this.#apply(codes.shift() ?? 0, codes);
    const { fg, bg } = this.#colours;
    this.style = [...this.#attributes, fg === null ? "" : `fg-${fg}`, bg === null ? "" : `bg-${bg}`].filter(Boolean).join(" ");
  }

  /** @param {number} code @param {number[]} following */
  #apply(code, following) {
    const attribute = ATTRIBUTES.get(code);
    if (attribute) this.#attributes.add(attribute);
    RESETS.get(code)?.forEach((each) => this.#attributes.delete(each));
    if (code === 0) {
      this.#attributes.clear();
      this.#colours = { fg: null, bg: null };
    }
    this.#colour("fg", code, 30, following);
    this.#colour("bg", code, 40, following);
  }

  /** @param {"fg" | "bg"} layer @param {number} code @param {number} base 30 or 40 @param {number[]} following */
  #colour(layer, code, base, following) {
    if (code >= base && code < base + 8) this.#colours[layer] = code - base;
    else if (code >= base + 60 && code < base + 68) this.#colours[layer] = code - base - 52;
    else if (code === base + 9) this.#colours[layer] = null;
    else if (code === base + 8) this.#colours[layer] = extended(following);
  }
}

/** @param {number[]} following its leading `5;n` or `2;r;g;b` is removed @returns {number | null} */
function extended(following) {
  const kind = following.shift();
  if (kind === 5) return ofPalette(Math.min(255, following.shift() ?? 0));
  return kind === 2 ? nearest([0, 0, 0].map(() => Math.min(255, following.shift() ?? 0))) : null;
}
