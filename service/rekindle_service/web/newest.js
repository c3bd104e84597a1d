/**
 * Answers that come in another order than they were asked for: one that is older than what is shown is passed over.
 *
 * Not "only the newest question counts": where something is asked about more often than answered, nothing would be shown.
 */

/**
 * @template Answer
 * @param {() => Promise<Answer>} ask
 * @param {(answer: Answer) => void} show
 */
export function newest(ask, show) {
  let asked = 0;
  let shown = 0;
  const fetchAndShow = async () => {
    const number = ++asked;
    const answer = await ask();
    if (number < shown) return;
    shown = number;
    show(answer);
  };
  /** What came unasked is newer than every answer that is still awaited. @param {Answer} answer */
  const tell = (answer) => {
    shown = ++asked;
    show(answer);
  };
  return Object.assign(fetchAndShow, { tell });
}
