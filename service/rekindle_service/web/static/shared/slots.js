/**
 * The slots of this machine as text: who has each, and how the GPUs are connected. Pure.
 *
 * @import { DevicePublic as Slot, Link } from "./api-types.d.ts"
 */

/** What a slot is, where no job that this person may see holds it. @param {Slot} slot */
export function slotText({ held, unusable, disabled }) {
  if (held) return "a job of another person";
  if (unusable) return disabled ? "disabled" : "in use by others";
  return "free";
}

/** What follows the name of a slot's first job. @param {Slot} slot */
export const otherJobs = ({ jobs }) => (jobs.length > 1 ? ` and ${jobs.length - 1} more` : "");

/** Best first. */
const KINDS = ["nvlink", "pix", "pxb", "phb", "node", "sys"];

/** @type {Record<string, string>} */
const LABELS = {
  nvlink: "NVLink",
  pix: "one PCIe switch",
  pxb: "several PCIe switches",
  phb: "the PCIe host bridge",
  node: "one NUMA node",
  sys: "the inter-processor link",
};

/** @param {string} kind */
export const kindLabel = (kind) => LABELS[kind] ?? kind;

/** @param {string[]} names of slots @param {Link[]} links @returns {string[]} those that have a link */
export const linkedSlots = (names, links) => names.filter((name) => links.some(({ first, second }) => first === name || second === name));

/**
 * Groups that a kind of link, or a better one, connects; a kind that connects nothing new is omitted.
 *
 * @param {string[]} names @param {Link[]} links @returns {{kind: string, groups: string[][]}[]} best kind first
 */
function islands(names, links) {
  const group = new Map(names.map((name) => [name, [name]]));
  return KINDS.flatMap((kind) => {
    const merged = links.filter((link) => link.kind === kind && merge(group, link));
    return merged.length ? [{ kind, groups: [...new Set(group.values())].filter(({ length }) => length > 1).map((each) => [...each]) }] : [];
  });
}

/**
 * Merge the two groups that `link` connects; false where they are one already.
 *
 * @param {Map<string, string[]>} group of each name @param {Link} link
 */
function merge(group, { first, second }) {
  const [one, other] = [group.get(first), group.get(second)];
  if (!one || !other || one === other) return false;
  one.push(...other);
  other.forEach((name) => group.set(name, one));
  return true;
}

/**
 * One sentence, empty where there are no links: "NVLink connects cuda:0 cuda:1, cuda:2 cuda:3; … connects all 4 GPUs".
 *
 * @param {string[]} names @param {Link[]} links
 */
export function topologySentence(names, links) {
  const linked = linkedSlots(names, links);
  const parts = islands(linked, links).map(({ kind, groups }) => {
    const whole = groups.length === 1 && groups[0].length === linked.length;
    return `${kindLabel(kind)} connects ${whole ? `all ${linked.length} GPUs` : groups.map((each) => each.sort().join(" ")).join(", ")}`;
  });
  return parts.join("; ");
}
