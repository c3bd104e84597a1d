/**
 * A failure that somebody has looked at needs nobody any more.
 *
 * @import { JobPublic as Job } from "./api-types.d.ts"
 */
import { mayChange, me } from "./account.js";
import { call, warn } from "./api.js";
import { SEEN } from "./job-actions.js";

let isMarking = false;

/** Mark a failure as seen while a person who may change the job looks at it. @param {Job} job */
export async function markSeen(job) {
  if (isMarking || document.hidden || !SEEN.possible(job)) return;
  isMarking = true;
  await me;
  if (!mayChange(job.owner)) return; // for good: this page may not change it
  await call("PATCH /jobs/{job_id}", { job_id: job.id }, { seen: true }).catch(warn("that the failure was seen"));
  isMarking = false;
}
