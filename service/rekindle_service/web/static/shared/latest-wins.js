/**
 * Answers that arrive in another order than their requests were sent.
 *
 * An answer older than the one shown is ignored. The rule is not "only the answer to the latest request counts": where
 * requests are more frequent than answers, nothing would ever be shown.
 *
 * @template Answer
 * @param {() => Promise<Answer>} fetchAnswer @param {(answer: Answer) => void} show
 */
export function latestWins(fetchAnswer, show) {
  let requested = 0;
  let shown = 0;
  const refetch = async () => {
    const number = ++requested;
    const answer = await fetchAnswer();
    if (number < shown) return;
    shown = number;
    show(answer);
  };
  /** A pushed answer is newer than every answer that is still awaited. @param {Answer} answer */
  const push = (answer) => {
    shown = ++requested;
    show(answer);
  };
  return Object.assign(refetch, { push });
}
