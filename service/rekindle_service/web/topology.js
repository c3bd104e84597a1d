/**
 * How the GPUs of this machine reach each other, in words. Pure.
 *
 * @typedef {{first: string, second: string, kind: string}} Link names of two slots, and a kind as `nvidia-smi topo` has it
 */

/** Best first. */
const KINDS = ["nvlink", "pix", "pxb", "phb", "node", "sys"];

/** @type {Record<string, string>} */
const WORDS = {
  nvlink: "NVLink",
  pix: "one PCIe switch",
  pxb: "several PCIe switches",
  phb: "the PCIe host bridge",
  node: "one NUMA node",
  sys: "the link between processors",
};

/** @param {string} kind */
export const kindWords = (kind) => WORDS[kind] ?? kind;

/**
 * Groups that a kind of link, or a better one, joins; a kind that joins nothing new is left out.
 *
 * @param {string[]} names
 * @param {Link[]} links
 * @returns {{kind: string, groups: string[][]}[]} best kind first
 */
export function islands(names, links) {
  const group = new Map(names.map((name) => [name, [name]]));
  return KINDS.flatMap((kind) => {
    const joined = links.filter((link) => link.kind === kind && join(group, link));
    return joined.length ? [{ kind, groups: [...new Set(group.values())].filter(({ length }) => length > 1).map((each) => [...each]) }] : [];
  });
}

/**
 * Make one group of the two that `link` connects; false where it is one already.
 *
 * @param {Map<string, string[]>} group of each name
 * @param {Link} link
 */
function join(group, { first, second }) {
  const [one, other] = [group.get(first), group.get(second)];
  if (!one || !other || one === other) return false;
  one.push(...other);
  other.forEach((name) => group.set(name, one));
  return true;
}

/**
 * One sentence, empty where there are no links: "NVLink joins cuda:0 cuda:1, cuda:2 cuda:3; … joins all 4."
 *
 * @param {string[]} names
 * @param {Link[]} links
 */
export function topologySentence(names, links) {
  const linked = names.filter((name) => links.some((link) => link.first === name || link.second === name));
  const parts = islands(linked, links).map(({ kind, groups }) => {
    const whole = groups.length === 1 && groups[0].length === linked.length;
    return `${kindWords(kind)} joins ${whole ? `all ${linked.length} GPUs` : groups.map((each) => each.sort().join(" ")).join(", ")}`;
  });
  return parts.join("; ");
}
