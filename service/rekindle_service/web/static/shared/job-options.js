/** Options of a job with their defaults, by `make generate` from the OpenAPI document: do not edit. */
export const JOB_OPTIONS = {
  "args": [],
  "env": {},
  "device": "auto",
  "devices_per_rank": 1,
  "launch": "auto",
  "links": "preferred",
  "priority": 0,
  "after": [],
  "after_any": [],
  "resizable": true,
  "gpu_share": 1.0,
  "max_failures": 3,
  "hang_timeout": null,
  "time_limit": null,
  "warm": true,
  "watch": [],
  "on_restart": [],
  "continue_from": null,
  "exclude": [],
  "gitignore": false,
  "keep_links": false
};
