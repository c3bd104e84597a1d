/** One animation frame for all that is to be drawn, also for what the drawing of one part leads to in another. */

/** @type {Set<() => void>} in the order of the requests */
const due = new Set();
let isRequested = false;

/** Call `draw` in the next frame, once, however often it is requested until then; not while the page is hidden. @param {() => void} draw */
export function inNextFrame(draw) {
  due.add(draw);
  if (!isRequested) requestAnimationFrame(drawAll);
  isRequested = true;
}

/** One that fails does not keep the others from being drawn. */
function drawAll() {
  try {
    for (const draw of due) {
      due.delete(draw);
      draw();
    }
  } finally {
    isRequested = due.size > 0;
    if (isRequested) requestAnimationFrame(drawAll);
  }
}
