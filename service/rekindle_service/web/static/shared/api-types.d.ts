/** Types of the REST API, written by `make generate` from the OpenAPI document: do not edit. */
export interface Page<Item> { items: Item[]; next: string | null }
export interface AttemptLanes {
  attempt: number; started_at: number; ranks_running_at: number | null; ended_at: number | null; at: number[];
  ranks: RankLane[]; totals: LaneTotals;
}
export interface AttemptMatches { attempt: number; count: number; complete: boolean; }
export interface AttemptPublic {
  number: number; state: "running" | "ended"; started_at: string | null; ranks_running_at: string | null;
  ended_at: string | null; outcome: Record<string, any> | null; resumed_from_step: number | null;
  resumed_from_path: string | null; last_step: number | null; snapshot_step: number | null;
  replayed_steps: number | null; world_size: number | null; devices: string[]; next_try_at: string | null;
  reason: string | null; args: string[] | null; faults: FaultPublic[];
}
export interface AuditPublic {
  id: number; at: string | null; person: string | null; token_id: string | null; via: string; address: string;
  action: string; target: string; status: number; detail: string;
}
export interface BestResultPublic {
  text: string; measure: string | null; goal: "min" | "max" | null; best: number | null;
  parameters: Record<string, any> | null; low: number | null; high: number | null;
}
export interface BuiltIn { name: string; size: string; title: string; jobs: number; definition: Record<string, any>; }
export interface Bundle { id: string; bytes: number; }
export interface ChaosPublic { attempt: number; fault: string; rank: number | null; }
export interface ChaosRequest { fault: Fault; rank?: number | null; }
export interface CheckpointPublic {
  path: string; kind: string; bytes: number; written_at: string | null; attempt: number; complete: boolean;
  loaded: number | null;
}
export interface Code { path?: string | null; bundle?: string | null; git?: string | null; ref?: string | null; }
export interface CodePublic { digest: string; files: number; bytes: number; }
export interface ComparisonRow {
  parameters: Record<string, string | number | boolean | null>; trials: number[]; values: (number | null)[];
  spread: ([number, number] | null)[];
}
export interface ConfigurationPublic {
  directory: string; code: CodePublic | null; environment: Record<string, any> | null;
}
export interface CurvePublic { job: string; name: string; points: ([number, number | null, number, number | null])[]; }
export interface DeviceDisable { reason?: string; }
export interface DevicePublic {
  name: string; device: string; index: number; model: string | null; memory: number | null; uuid: string | null;
  bus_id: string | null; numa_node: number | null; title: string; held: boolean; job: string | null;
  job_name: string | null; job_state: string | null; jobs: string[]; free_share: number; unusable: string | null;
  disabled: Disabled | null; users: DeviceUser[];
}
export interface DeviceUsagePublic {
  utilization_percent: number | null; memory_used_bytes: number | null; memory_total_bytes: number | null;
  temperature_celsius: number | null; power_watts: number | null; name: string; kind: string; model: string | null;
  held_by: string | null;
}
export interface DeviceUser { pid: number; name: string | null; user: string | null; memory_bytes: number | null; }
export interface Devices {
  items: DevicePublic[]; next: string | null; links: Link[]; excluded_nodes: Record<string, string>;
}
export interface Disabled { reason: string; at: string | null; by: string | null; }
export interface Disk { home: Space; shared_memory: Space | null; }
export interface DiskUsage {
  total_bytes: number; free_bytes: number; lack_of_space: string | null; jobs: KindBytes; bundles_bytes: number;
  database_bytes: number; owners: OwnerUsage[]; unmeasured: number; pending_deletions: number;
  stuck_deletions: StuckDeletion[];
}
export interface DisplacedJob {
  kind: string; id: string | null; number: number | null; name: string | null; owner: string | null;
}
export interface EnvSource { file?: string | null; from?: string | null; }
export interface EventPublic {
  id: number; at: string | null; kind: string; from_state: string | null; to_state: string | null;
  reason: string | null;
}
export interface ExperimentCreate {
  name?: string | null; args?: string[]; builtin?: string | null; size?: string; title?: string;
  base?: Record<string, any>;
  matrix?: Record<string, (string | number | boolean | null)[]> | (Record<string, (string | number | boolean | null)[]>)[] | null;
  array?: string | null; repeats?: number; seed_option?: string | null; measure?: (string | Measure)[];
  sequential?: boolean; parallel?: number | null;
}
export interface ExperimentPublic {
  id: string; number: number; name: string; owner: string | null; title: string; command: string | null;
  created_at: string | null; over: boolean; jobs: number; states: Record<string, number>;
  definition: Record<string, any>; machine: Record<string, any>; notes: string[]; parameters: string[];
  measures: string[]; metrics: string[]; goals: ("min" | "max" | null)[]; best: number[][]; logged: string[];
  rows: ComparisonRow[]; trials: TrialPublic[];
}
export interface ExperimentSummary {
  id: string; number: number; name: string; owner: string | null; title: string; command: string | null;
  created_at: string | null; over: boolean; jobs: number; states: Record<string, number>;
}
export type Fault = "kill" | "stop" | "crash" | "raise" | "hang" | "oom" | "agent" | "keeper" | "corrupt-snapshot";
export interface FaultPublic { at: string | null; fault: string | null; rank: number | null; snapshot: number | null; }
export interface FieldError { field: string; rule: string; value: any; hint: string; }
export interface FileDifferencePublic { path: string; change: "added" | "removed" | "changed"; diff: string | null; }
export interface GpuSample { name: string; utilization_percent: number | null; memory_used_bytes: number | null; }
export interface GpuUsage {
  index: number; utilization_percent: number | null; memory_used_bytes: number | null;
  memory_total_bytes: number | null; temperature_celsius: number | null; power_watts: number | null;
}
export interface IntervalPublic {
  category: TimeCategory; attempt: number | null; started_at: string | null; seconds: number;
}
export type ItemKind = "job" | "snapshot" | "logs" | "bundle" | "events" | "audit";
export interface JobCreate {
  args?: string[]; env?: Record<string, any>; device?: string; devices_per_rank?: number;
  launch?: "auto" | "torchrun" | "process"; links?: "preferred" | "required" | "avoided"; priority?: number;
  after?: string[]; after_any?: string[]; resizable?: boolean; gpu_share?: number; max_failures?: number;
  hang_timeout?: number | null; time_limit?: number | null; snapshot?: SnapshotPolicyOptions; warm?: boolean;
  watch?: string[]; on_restart?: string[]; continue_from?: string | null; continue_step?: number | null;
  exclude?: string[]; gitignore?: boolean; keep_links?: boolean; name?: string | null; script?: string | null;
  module?: string | null; recipe?: string | null; code?: Code | null; python?: string | null;
  ranks?: number | RankRange; nodes?: number | NodeRange; slurm?: SlurmRequest | null; hold?: boolean;
}
export interface JobPatch {
  name?: string | null; priority?: number | null; max_failures?: number | null; tags?: string[] | null;
  note?: string | null; archived?: boolean | null; seen?: boolean | null;
}
export interface JobPublic {
  args: string[]; env: Record<string, string | Record<string, string>>; device: string; devices_per_rank: number;
  launch: "auto" | "torchrun" | "process"; links: "preferred" | "required" | "avoided"; priority: number;
  after: string[]; after_any: string[]; resizable: boolean; gpu_share: number; max_failures: number;
  hang_timeout: number | null; time_limit: number | null; snapshot: SnapshotPolicyOptions; warm: boolean;
  watch: string[]; on_restart: string[]; continue_from: string | null; continue_step: number | null; exclude: string[];
  gitignore: boolean; keep_links: boolean; name: string; owner: string | null; ranks: RankRange; nodes: NodeRange;
  slurm: SlurmPublic | null; target: Target; code: Record<string, string>; python: string; warnings: string[];
  id: string; number: number; state: string; phase: string | null; intent: string; attempt: number;
  world_size: number | null; devices: string[]; epoch: number | null; epochs: number | null; step: number | null;
  steps: number | null; progress: number | null; eta_seconds: number | null; steps_per_second: number | null;
  restarts: number; outcome: Record<string, any> | null; next_try_at: string | null; queue_position: number | null;
  waiting_for: string | null; reason: string; estimated_start_at: string | null; displaced: Record<string, any> | null;
  preemptions: number; snapshot_step: number | null; checkpoints: CheckpointPublic[]; estimated_step: number | null;
  estimated_epoch: number | null; stalled: StalledPublic | null; notice: string | null; created_at: string | null;
  started_at: string | null; ended_at: string | null; archived_at: string | null; seen_at: string | null;
  tags: string[]; note: string; goodput: number | null; version: number; experiment_id: string | null;
}
export type JobState = "queued" | "starting" | "running" | "recovering" | "succeeded" | "failed" | "cancelled";
export interface JobUsage {
  id: string; number: number; name: string; owner: string | null; state: string; ended_at: string | null;
  bytes: number | null; kinds: KindBytes | null;
}
export interface KindBytes { snapshots: number; logs: number; code: number; other: number; }
export interface LaneTotals {
  cpu_percent: (number | null)[]; rss_bytes: number[]; gpu_percent: (number | null)[];
  gpu_memory_bytes: (number | null)[];
}
export interface Lanes { begin: number; end: number; phases: string[]; attempts: AttemptLanes[]; complete: boolean; }
export interface Link { first: string; second: string; kind: string; }
export type LogLevel = "debug" | "info" | "warning" | "error";
export interface LogLines {
  attempt: number; items: TimedLine[]; next: string | null; previous: string | null; complete: boolean; ended: boolean;
  has_times: boolean; unfinished: TimedLine[];
}
export interface LogMatches { items: RankMatches[]; next: string | null; attempts: AttemptMatches[]; }
export type LogTime = [number, number];
export interface LogTimesPublic { attempt: number; rank: number; stream: string; items: LogTime[]; }
export interface MachinePublic {
  at: string | null; cpu_percent: number | null; cores: number; memory: Memory; disk: Disk; isolation: string;
  devices: DeviceUsagePublic[]; history: MachineSample[];
}
export interface MachineSample {
  at: string | null; cpu_percent: number | null; memory_used_bytes: number; disk_free_bytes: number;
  devices: GpuSample[];
}
export interface Match { offset: number; line_offset: number; text: string; }
export interface Me { person: string; scope: Scope; via: Via; expires_at: string | null; private_jobs: boolean; }
export interface Measure {
  metric: string; take?: "last" | "min" | "max" | "mean";
  relative_to?: Record<string, string | number | boolean | null> | null; title?: string | null;
  goal?: "min" | "max" | null;
}
export interface Memory { used_bytes: number; total_bytes: number; }
export interface MetricName { name: string; step: number; value: number | null; goal: "min" | "max" | null; }
export interface MetricSeries {
  attempt: number; name: string; points: ([number, number | null, number, number | null])[];
}
export interface NodeRange { min: number; max: number; }
export interface Overview {
  needs_you: OverviewItem[]; running: OverviewItem[]; next: OverviewItem[]; done: OverviewItem[];
  counts: OverviewCounts;
}
export interface OverviewCounts { needs_you: number; running: number; next: number; }
export interface OverviewItem {
  kind: "job" | "experiment" | "device" | "disk"; reason: string; at: string | null; job: JobPublic | null;
  experiment: ExperimentSummary | null; device: string | null;
}
export interface OwnerShare {
  owner: string; slot_seconds: number; share: number; slots: number; running: number; queued: number;
  max_slots: number | null; max_queued: number | null;
}
export interface OwnerUsage { owner: string | null; jobs: number; bytes: number; }
export interface Problem { type: string; title: string; status: number; detail: string; errors: FieldError[]; }
export interface PruneFailure { item: PruneItem; reason: string; }
export interface PruneItem {
  kind: ItemKind; job_id: string | null; number: number | null; name: string; owner: string | null; bytes: number;
  count: number; reason: string;
}
export interface PruneRequest {
  dry_run?: boolean; owner?: string | null; keep_jobs_days?: number | null; keep_snapshots_days?: number | null;
  keep_logs_days?: number | null; keep_events_days?: number | null; keep_audit_days?: number | null;
  keep_bundles_days?: number | null; owner_bytes?: number | null; jobs_bytes?: number | null;
}
export interface PruneResult {
  items: PruneItem[]; next: string | null; dry_run: boolean; count: number; bytes: number; failures: PruneFailure[];
}
export interface Queue {
  items: QueuedJob[]; next: string | null; owners: OwnerShare[]; queued: number; half_life_days: number;
}
export interface QueueStats { jobs: Record<JobState, number>; slots: SlotCount; goodput: number | null; }
export interface QueuedJob {
  position: number | null; job: string; number: number; name: string; owner: string; priority: number; ranks: RankRange;
  slots: number; device: string; intent: string; waiting_for: string | null; reason: string;
  estimated_start_at: string | null; preemptions: number; created_at: string | null;
}
export interface RaisedException { type: string; message: string; }
export interface RankGroup { ranks: number[]; what: string; frames: StoryFrame[]; }
export interface RankLane {
  rank: number; exit: string | null; ended_at: number | null; phase: (number | null)[]; step: (number | null)[];
  waiting: (number | null)[]; use: (number | null)[];
}
export interface RankMatches {
  attempt: number; rank: number; stream: string; count: number; complete: boolean; first: Match | null;
}
export interface RankPublic {
  rank: number; local_rank: number | null; host: string | null; pid: number | null; state: RankState;
  exit_code: number | null; signal: string | null; phase: string | null; epoch: number | null; step: number | null;
  steps: number | null; steps_per_second: number | null; resumed_from_step: number | null; snapshot_step: number | null;
  notice: string | null; device: string | null; process_state: string | null; heartbeat_age: number | null;
  straggler: number | null; last_line: string | null; usage: UsagePublic | null; hang_timeout: number | null;
  without_progress: number | null;
}
export interface RankRange { min: number; max: number; }
export type RankState = "starting" | "running" | "done" | "drained" | "failed" | "killed";
export interface RecipeOption {
  name: string; help: string; metavar: string | null; choices: string[]; is_flag: boolean; default: string | null;
}
export interface RecipePublic { name: string; title: string; options: RecipeOption[]; }
export interface ResumeRequest { snapshot?: number | null; }
export interface SameError { id: string; number: number; name: string; }
export type Scope = "read" | "submit" | "admin";
export interface SearchPage { items: Match[]; next: number | null; size: number; }
export interface SlotCount { held: number; total: number; }
export interface SlurmPublic {
  partition: string | null; account: string | null; qos: string | null; time: string | null; constraint: string | null;
  mem: string | null; gres: string | null; gpus_per_node: string | null; prologue: string[]; extra: string[];
  job_id: number | null; state: string | null; reason: string | null; hosts: string[]; excluded: Record<string, string>;
}
export interface SlurmRequest {
  partition?: string | null; account?: string | null; qos?: string | null; time?: string | null;
  constraint?: string | null; mem?: string | null; gres?: string | null; gpus_per_node?: string | null;
  prologue?: string[]; extra?: string[];
}
export interface SnapshotList { items: SnapshotPublic[]; next: string | null; policy: string | null; }
export interface SnapshotPolicyOptions {
  every_steps: number | null; every_seconds: number | null; every_epochs: number | null; keep: number; auto: boolean;
  monitor: string | null;
}
export interface SnapshotPublic {
  step: number; epoch: number | null; bytes: number; verified: boolean; world_size: number; created_at: string | null;
  score: number | null; best: boolean; pinned: boolean;
}
export interface SourceLine { line: number; text: string; }
export type SourceState = "current" | "changed" | "unreadable";
export interface Space { free_bytes: number; total_bytes: number; }
export interface StackPublic { attempt: number; rank: number; stack: string; }
export interface StalledPublic { sentence: string; since: string | null; hung_at: string | null; rank: number | null; }
export interface Story {
  attempt: number; kind: StoryKind; title: string; sentence: string; rank: number | null; stream: string | null;
  offset: number | null; at: number | null; exception: RaisedException | null; frames: StoryFrame[];
  hidden_frames: number; groups: RankGroup[]; same_error: SameError[]; next_step: string | null;
}
export interface StoryFrame {
  file: string; line: number; function: string; is_user: boolean; source: SourceLine[]; source_state: SourceState;
}
export type StoryKind = "failure" | "hang" | "stop" | "running" | "finished" | "waiting";
export interface StuckDeletion { path: string; reason: string; since: string | null; next_try_at: string | null; }
export interface Target { kind: string; value: string; }
export interface TimeBreakdown {
  goodput: number | null; seconds: Record<TimeCategory, number>; intervals: IntervalPublic[];
}
export type TimeCategory = "queued" | "waiting" | "starting" | "training" | "saving" | "replayed" | "stalled";
export interface TimedLine {
  rank: number; stream: string; offset: number; end: number; at: number | null; level: LogLevel; text: string;
  removed: number;
}
export interface TokenCreate { person: string; scope?: Scope; expires_in?: number | null; note?: string; }
export interface TokenCreated {
  id: string; person: string; scope: Scope; note: string; created_by: string; created_at: string | null;
  expires_at: string | null; revoked_at: string | null; last_used_at: string | null; valid: boolean; token: string;
}
export interface TokenPublic {
  id: string; person: string; scope: Scope; note: string; created_by: string; created_at: string | null;
  expires_at: string | null; revoked_at: string | null; last_used_at: string | null; valid: boolean;
}
export interface TrialPublic {
  job: string; number: number; name: string; state: string; intent: string; parameters: Record<string, any>;
  repeat: number; seconds: number | null; restarts: number; outcome: Record<string, any> | null;
  values: (number | null)[];
}
export interface UsagePublic {
  at: string | null; cpu_percent: number | null; rss_bytes: number; read_bytes: number; written_bytes: number;
  devices: GpuUsage[];
}
export interface UsageSeries { attempt: number; rank: number; points: UsagePublic[]; }
export interface ValidatedJob {
  args: string[]; env: Record<string, string | Record<string, string>>; device: string; devices_per_rank: number;
  launch: "auto" | "torchrun" | "process"; links: "preferred" | "required" | "avoided"; priority: number;
  after: string[]; after_any: string[]; resizable: boolean; gpu_share: number; max_failures: number;
  hang_timeout: number | null; time_limit: number | null; snapshot: SnapshotPolicyOptions; warm: boolean;
  watch: string[]; on_restart: string[]; continue_from: string | null; continue_step: number | null; exclude: string[];
  gitignore: boolean; keep_links: boolean; name: string; owner: string | null; ranks: RankRange; nodes: NodeRange;
  slurm: SlurmPublic | null; target: Target; code: Record<string, string>; python: string; warnings: string[];
  command: string[]; slots: number; devices: string[]; code_files: number; code_bytes: number; starts_in: number | null;
  queue_position: number | null; reason: string; displaces: DisplacedJob[];
}
export type Via = "token" | "browser" | "socket";
export type Value = string | number | boolean | null;
/** By method and path below /api/v1: values of the path and the query, the JSON body, the answer. */
export interface Routes {
  "POST /jobs": { values: {}; body: JobCreate; answer: JobPublic; }
  "GET /jobs": {
    values: { state?: Value; name?: Value; q?: Value; experiment?: Value; owner?: Value; limit?: Value; cursor?: Value;
    }; answer: Page<JobPublic>;
  }
  "POST /jobs/validate": { values: { jobs?: Value; }; body: JobCreate; answer: ValidatedJob; }
  "GET /jobs/resolve": { values: { ref: Value; }; answer: JobPublic; }
  "GET /jobs/completions": { values: { prefix?: Value; limit?: Value; }; answer: Page<JobPublic>; }
  "GET /jobs/{job_id}": { values: { job_id: Value; }; answer: JobPublic; }
  "PATCH /jobs/{job_id}": { values: { job_id: Value; }; body: JobPatch; answer: JobPublic; }
  "DELETE /jobs/{job_id}": { values: { job_id: Value; }; answer: null; }
  "POST /jobs/{job_id}/cancel": { values: { job_id: Value; }; answer: JobPublic; }
  "POST /jobs/{job_id}/drain": { values: { job_id: Value; }; answer: JobPublic; }
  "POST /jobs/{job_id}/resume": { values: { job_id: Value; }; body: ResumeRequest | null; answer: JobPublic; }
  "GET /summary": { values: {}; answer: QueueStats; }
  "GET /queue": { values: { owner?: Value; limit?: Value; cursor?: Value; }; answer: Queue; }
  "GET /overview": { values: { limit?: Value; }; answer: Overview; }
  "GET /jobs/{job_id}/attempts": {
    values: { job_id: Value; limit?: Value; cursor?: Value; }; answer: Page<AttemptPublic>;
  }
  "GET /jobs/{job_id}/events": { values: { job_id: Value; limit?: Value; cursor?: Value; }; answer: Page<EventPublic>; }
  "GET /jobs/{job_id}/time": { values: { job_id: Value; }; answer: TimeBreakdown; }
  "GET /jobs/{job_id}/lanes": { values: { job_id: Value; from?: Value; to?: Value; points?: Value; }; answer: Lanes; }
  "GET /jobs/{job_id}/story": { values: { job_id: Value; attempt?: Value; }; answer: Story; }
  "GET /jobs/{job_id}/ranks": {
    values: { job_id: Value; attempt?: Value; limit?: Value; cursor?: Value; }; answer: Page<RankPublic>;
  }
  "POST /jobs/{job_id}/ranks/{rank}/stack": {
    values: { job_id: Value; rank: Value; attempt?: Value; }; answer: StackPublic;
  }
  "POST /jobs/{job_id}/chaos": { values: { job_id: Value; }; body: ChaosRequest; answer: ChaosPublic; }
  "GET /jobs/{job_id}/ranks/{rank}/log": {
    values: { job_id: Value; rank: Value; stream?: Value; offset?: Value; limit?: Value; tail?: Value; attempt?: Value;
    }; answer: null;
  }
  "GET /jobs/{job_id}/ranks/{rank}/log/search": {
    values: { job_id: Value; rank: Value; q: Value; stream?: Value; from?: Value; backwards?: Value; limit?: Value;
    regex?: Value; attempt?: Value; }; answer: SearchPage;
  }
  "GET /jobs/{job_id}/logs/search": {
    values: { job_id: Value; q: Value; stream?: Value; rank?: Value; regex?: Value; attempt?: Value; limit?: Value;
    cursor?: Value; }; answer: LogMatches;
  }
  "GET /jobs/{job_id}/ranks/{rank}/log/file": {
    values: { job_id: Value; rank: Value; stream?: Value; attempt?: Value; }; answer: null;
  }
  "GET /jobs/{job_id}/logs.zip": { values: { job_id: Value; attempt?: Value; }; answer: null; }
  "GET /jobs/{job_id}/log": {
    values: { job_id: Value; rank?: string[]; stream?: Value; after?: Value; before?: Value; at?: Value; limit?: Value;
    attempt?: Value; level?: Value; q?: Value; regex?: Value; }; answer: LogLines;
  }
  "GET /jobs/{job_id}/ranks/{rank}/log/times": {
    values: { job_id: Value; rank: Value; stream?: Value; from?: Value; to?: Value; attempt?: Value; };
    answer: LogTimesPublic;
  }
  "GET /jobs/{job_id}/metrics": {
    values: { job_id: Value; attempt?: Value; name?: string[]; max_points?: Value; limit?: Value; cursor?: Value; };
    answer: Page<MetricSeries>;
  }
  "GET /jobs/{job_id}/metrics/names": {
    values: { job_id: Value; limit?: Value; cursor?: Value; }; answer: Page<MetricName>;
  }
  "GET /jobs/{job_id}/usage": {
    values: { job_id: Value; attempt?: Value; rank?: Value; max_points?: Value; limit?: Value; cursor?: Value; };
    answer: Page<UsageSeries>;
  }
  "GET /jobs/{job_id}/snapshots": { values: { job_id: Value; limit?: Value; cursor?: Value; }; answer: SnapshotList; }
  "PUT /jobs/{job_id}/snapshots/{step}/pin": { values: { step: Value; job_id: Value; }; answer: null; }
  "DELETE /jobs/{job_id}/snapshots/{step}/pin": { values: { step: Value; job_id: Value; }; answer: null; }
  "GET /jobs/{job_id}/snapshots/{step}/files.zip": { values: { step: Value; job_id: Value; }; answer: null; }
  "POST /bundles": { values: {}; body: Blob; answer: Bundle; }
  "GET /jobs/{job_id}/configuration": { values: { job_id: Value; }; answer: ConfigurationPublic; }
  "GET /jobs/{job_id}/code/differences": {
    values: { job_id: Value; other: Value; limit?: Value; cursor?: Value; }; answer: Page<FileDifferencePublic>;
  }
  "GET /recipes": { values: { limit?: Value; cursor?: Value; }; answer: Page<RecipePublic>; }
  "POST /experiments": { values: {}; body: ExperimentCreate; answer: ExperimentPublic; }
  "GET /experiments": { values: { name?: Value; limit?: Value; cursor?: Value; }; answer: Page<ExperimentSummary>; }
  "GET /experiments/builtin": { values: { limit?: Value; cursor?: Value; }; answer: Page<BuiltIn>; }
  "GET /experiments/resolve": { values: { ref: Value; }; answer: ExperimentSummary; }
  "GET /experiments/{experiment_id}": { values: { experiment_id: Value; }; answer: ExperimentPublic; }
  "DELETE /experiments/{experiment_id}": { values: { experiment_id: Value; }; answer: null; }
  "GET /experiments/{experiment_id}/best": { values: { experiment_id: Value; }; answer: BestResultPublic; }
  "GET /experiments/{experiment_id}/curves": {
    values: { experiment_id: Value; name?: string[]; max_points?: Value; limit?: Value; cursor?: Value; };
    answer: Page<CurvePublic>;
  }
  "POST /experiments/{experiment_id}/cancel": { values: { experiment_id: Value; }; answer: ExperimentPublic; }
  "POST /experiments/{experiment_id}/resume": { values: { experiment_id: Value; }; answer: ExperimentPublic; }
  "GET /devices": { values: { limit?: Value; cursor?: Value; }; answer: Devices; }
  "POST /devices/{name}/disable": { values: { name: Value; }; body: DeviceDisable; answer: DevicePublic; }
  "POST /devices/{name}/enable": { values: { name: Value; }; answer: DevicePublic; }
  "GET /machine": { values: { max_points?: Value; }; answer: MachinePublic; }
  "GET /disk": { values: {}; answer: DiskUsage; }
  "GET /disk/jobs": { values: { owner?: Value; limit?: Value; cursor?: Value; }; answer: Page<JobUsage>; }
  "POST /disk/prune": { values: {}; body: PruneRequest; answer: PruneResult; }
  "POST /disk/retry-deletions": { values: {}; answer: null; }
  "GET /events": { values: { job?: string[]; log?: string[]; last_event_id?: Value; }; answer: null; }
  "GET /me": { values: {}; answer: Me; }
  "GET /tokens": { values: { limit?: Value; cursor?: Value; }; answer: Page<TokenPublic>; }
  "POST /tokens": { values: {}; body: TokenCreate; answer: TokenCreated; }
  "DELETE /tokens/{token_id}": { values: { token_id: Value; }; answer: null; }
  "GET /audit": { values: { person?: Value; limit?: Value; cursor?: Value; }; answer: Page<AuditPublic>; }
}
