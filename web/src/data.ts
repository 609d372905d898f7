// What the Python side puts into the page; see report/page_*.py, which says what each part holds.

import type { Unit, Value } from "./format";
import type { Mark } from "./lanes";

export type Rows = [label: string, value: string, note: string][];
export type Figure = [key: string, title: string, unit: Unit];
export type Parts = [name: string, amount: number][];

export interface Overview {
  notices?: string[];
  facts: Rows;
  created: string;
  figures: { label: string; value: string; note: string; how: string; view: string }[];
  bound: {
    kind: string | null;
    confidence: string;
    evidence: string[];
    parts: Parts;
    how: string;
    training: boolean;
  } | null;
  phases: { parts: Parts; step: number; how: string } | null;
  findings: { title: string; text: string; view: string; node: number | null; search: string; kind: string }[];
  warnings: { id: string; probe: string; failed: boolean; text: string }[];
  complete: boolean;
  interrupted: boolean;
}

export interface TreeData {
  texts: string[];
  columns: Record<string, (number | null)[]>;
  /** Short names of kernels, by the number of the text. */
  labels?: [text: number, label: string][];
  /** Of each node alone; what is below it adds up. */
  figures: Figure[];
  /** Of the view, where it is not a tree of layers, and what its types are. */
  title?: string;
  types?: string;
  kernels: { node: number[]; facts: string[][] };
  note?: string;
  step: string;
  steps: number;
  how: string;
}

export interface TableData {
  name: string;
  rows: number;
  /** How many smaller rows the page has no room for. */
  left?: number;
  note?: string;
  /** Title of the column by which it is sorted at first, the largest first. */
  sorted?: string;
  /** `names` are the whole names where the values are short ones. */
  columns: { title: string; unit: Unit; values: Value[]; names?: string[] }[];
  /** The node of each row; none of them has one where it is empty; null: nodes of the row's name. */
  nodes: number[] | null;
}

export interface RooflineData {
  points: {
    node: number[];
    path: string[];
    type: string[];
    intensity: number[];
    speed: number[];
    time: number[];
    bound: (string | null)[];
    efficiency: (number | null)[];
  };
  roofs: {
    device: string;
    source: string;
    peaks: Record<string, number>;
    traffic: Record<string, number>;
  }[];
  how: string;
}

/** Why there are no roofs, and the command that measures them. */
export interface NoRoofs {
  missing: string;
  command: string;
}

export interface LatencyData {
  runs: { samples: number[]; warmup: number }[];
  median: number;
  interval: [number, number] | null;
  interval_title: string;
  percentiles: Record<string, number>;
  mean: number;
  steady: boolean;
  rows: Rows;
  how: string;
  summary: string;
}

export interface MemoryData {
  time: number[];
  /** Whether `time` counts allocations and frees, in place of nanoseconds. */
  changes?: boolean;
  live: number[];
  peak: number;
  average: number | null;
  parts: Record<string, number>;
  /** All parts, in the order in which they are drawn and coloured. */
  order: string[];
  /** Bytes over time by part; empty where they are not known. */
  stacked: [part: string, values: number[]][];
  peak_at: { layer: string; node: number | null; operator: string; phase: string } | null;
  rows: Rows;
  method: string;
  how: string;
}

export interface SystemData {
  time: number[];
  cores: number[];
  rss: number[];
  core_count: number;
  gpus: { title: string; unit: Unit; time: number[]; values: (number | null)[] }[];
  rows: Rows;
  how: string;
}

export interface StepsData {
  durations: number[];
  phases: [name: string, steps: number, took: number][];
  rows: Rows;
}

export interface ChangesData {
  rows: {
    metric: string;
    baseline: string;
    current: string;
    change: number | null;
    text: string;
    interval: [number, number] | null;
    range: string;
    judgement: string;
    how: string;
    note: string;
    bounds: number[];
  }[];
  differences: Rows;
  paired: boolean;
}

export type ContributionsData = {
  title: string;
  note: string;
  bars: [name: string, amount: number, proven: boolean | null][];
  rest: number;
  others: string;
  total: number;
  whole: string;
  unit: Unit;
}[];

export interface BreakdownData {
  /** What the parts add up to: by default a window of time. */
  whole?: string;
  /** By default a time. */
  unit?: Unit;
  parts: string[];
  /** Titles of what each row says besides. */
  more: string[];
  rows: {
    name: string;
    level: number;
    whole: number;
    amounts: number[];
    more: string[];
    note: string;
    option: number | null;
  }[];
}

export interface RanksData extends BreakdownData {
  said: string[];
  slow: TableData | null;
}

export interface PathData {
  length: number;
  parts: Parts;
  table: TableData;
}

export interface TimelineData {
  /** Of the window, in ns. */
  duration: number;
  names: string[];
  /** Short names of kernels, by the number of the name. */
  labels: [name: number, label: string][];
  /** The kind of each name. */
  kinds: string[];
  places: [layer: string, phase: string][];
  lanes: { name: string; group: "path" | "idle" | "device" | "ranges" | "host"; rows: number[]; left: number }[];
  events: number;
  /** Bytes of each column once inflated; see records/timeline/tree.py. */
  sizes: number[];
  columns: string;
  counters: { name: string; unit: Unit; time: number[]; values: number[] }[];
  note: string;
}

export type HeldData = {
  title: string;
  note: string;
  categories: Parts;
  whole: number;
  table: TableData;
}[];

export interface CourseData {
  x: number[];
  timed: boolean;
  alive: number[];
  /** Bytes over time by stack; empty where they are not known. */
  stacked: [stack: string, bytes: number[]][];
  reserved: (number | null)[] | null;
  failed: number[];
  peak: number;
  marks: { drawn: Mark[]; table: TableData } | null;
  summary: string;
  note: string;
}

export interface LayoutData {
  parts: Parts;
  reserved: number;
  rows: Rows;
  /** By address; free runs are negative. */
  map: { size: number; runs: number[]; said: string }[];
  left: [segments: number, bytes: number];
  table: TableData;
}

export interface GroupsData {
  groups: { title: string; rows: Rows; notes: string[]; how: string; table: TableData | null }[];
}

export interface OomsData {
  last: { title: string; bars: [label: string, size: number | null][] }[];
  table: TableData;
}

export interface TrendData {
  series: {
    name: string;
    place: string;
    unit: Unit;
    how: string;
    values: (number | null)[];
    low: (number | null)[];
    high: (number | null)[];
    created: string[];
    commits: string[];
    changes: {
      from: number;
      to: number;
      size: string;
      interval: string;
      worse: boolean | null;
      lasting: string;
      commits: string;
      software: string;
      how: string;
    }[];
    unknown: string;
  }[];
  confirm: string;
}

export interface CellsData {
  axes: string[];
  rate: string;
  where: string;
  rows: {
    label: string;
    series: string;
    batch: number | null;
    status: string;
    reason: string;
    median: number | null;
    low: number | null;
    high: number | null;
    p99: number | null;
    first_call: number | null;
    rate: number | null;
    memory: number | null;
    flops: number | null;
    front: boolean;
    /** Metrics in which no other cell is as good, and those in which others may be. */
    best: string[];
    tied: string[];
  }[];
}

/** A limit in nanoseconds, a rate or bytes, and what is limited. */
interface LimitData {
  axis: "time" | "rate" | "bytes";
  value: number;
  label: string;
}

export interface ParetoData {
  objectives: string[];
  limits: LimitData[];
}

export interface FitData {
  points: [batch: number, value: number][];
  line: [batch: number, value: number, low: number | null, high: number | null][];
  limits: LimitData[];
}

export type ScalingData = {
  series: string;
  words: [string, string][];
  latency: FitData | null;
  memory: FitData | null;
}[];

interface GainData {
  speed_up: number | null;
  low: number | null;
  high: number | null;
  before: number | null;
  after: number | null;
}

export interface AdviceData {
  headline: string;
  rows: (GainData & {
    id: string;
    title: string;
    outcome: string;
    reason: string;
    code: string;
    how: string | null;
    output: string;
    memory: string;
    one_off: number | null;
    break_even: number | null;
    layers: { path: string; change: number; saved: number | null }[];
    assumed: [label: string, value: string, by: string][];
  })[];
  combinations: (GainData & {
    candidates: string[];
    against: string[];
    outcome: string;
    reason: string;
  })[];
  best: (GainData & { candidates: string[]; code: string; environment: string }) | null;
}

export interface ShapesData {
  maps: {
    title: string;
    batches: number[];
    prompts: number[];
    figures: [title: string, unit: Unit][];
    /** Values and ends of intervals in the order of the figures. */
    cells: {
      batch: number;
      prompt: number;
      status: string;
      reason: string;
      values: (number | null)[];
      intervals: ([number, number] | null)[];
    }[];
  }[];
  cells: TableData;
}

export type GrowthData = {
  title: string;
  axis: string;
  series: {
    label: string;
    points: [context: number, value: number][];
    /** `outside` is 1 where it is extrapolated. */
    line: [context: number, value: number, low: number | null, high: number | null, outside: number][];
  }[];
  notes: string[];
  words: Rows;
}[];

export type CacheData = {
  title: string;
  series: {
    label: string;
    points: [positions: number, held: number, used: number | null, formula: number | null][];
  }[];
  notes: string[];
}[];

/** A percentile of levels or settings: where on x, ns, both ends or null, why it is of no steady state. */
export interface PercentileSeries {
  label: string;
  fraction: number;
  points: [x: number, value: number, low: number | null, high: number | null, state?: string][];
}

interface GoalLine {
  value: number;
  label: string;
  fraction: number | null;
}

export interface KneeData {
  rate: number;
  low: number | null;
  high: number | null;
  label: string;
}

export interface RatesData {
  charts: { title: string; series: PercentileSeries[]; goals: GoalLine[]; controlled: PercentileSeries["points"] }[];
  throughput: [
    offered: number,
    answered: number | null, answeredLow: number | null, answeredHigh: number | null,
    goodput: number | null, goodputLow: number | null, goodputHigh: number | null,
    state: string,
  ][];
  knee: KneeData | null;
  levels: TableData;
  notes: string[];
}

type Stretch = { from: number; to: number; label: string };

export interface OverTimeData {
  time: number[];
  median: (number | null)[];
  p90: (number | null)[];
  slowest: (number | null)[];
  service: (number | null)[];
  due: number[];
  answered: number[];
  in_flight: number[];
  stretches: Stretch[];
  goals: { value: number; label: string }[];
  /** In a closed loop a request is due when the one before was answered. */
  closed: boolean;
}

/** Curves by "one in so many took that long or longer", with the record's percentiles on them. */
export interface TailData {
  series: {
    label: string;
    dashed?: boolean;
    points: [oneIn: number, value: number][];
    percentiles: [oneIn: number, value: number, low: number | null, high: number | null][];
  }[];
  goals: [oneIn: number, value: number, text: string][];
  notes: string[];
}

/** Points in microseconds; `count` is how many each stands for, empty where each is one. */
export interface PointsData {
  label: string;
  x: number[];
  y: number[];
  count: number[];
}

export interface RequestsData {
  series: PointsData[];
  unanswered: { fate: string; x: number[]; count: number[] }[];
  total: number;
  stretches: Stretch[];
  goals: { value: number; label: string }[];
  table: TableData;
}

export interface GapsData extends TailData {
  gaps: PointsData;
  total: number;
  stretches: Stretch[];
}

export interface ServerData {
  time: number[];
  series: { title: string; unit: Unit; values: number[]; levels: [value: number, label: string][] }[];
  requests: { time: number[]; due: number[]; answered: number[] } | null;
  stretches: Stretch[];
  rows: Rows;
}

export interface SettingsData {
  by_workers: { series: PercentileSeries[]; unstable: number[]; rate: number; note: string } | null;
  goals: GoalLine[];
  knees: [workers: number, rate: number, low: number | null, high: number | null][];
  needed: number | null;
  rate: number | null;
  table: TableData;
}

export interface FrontData {
  points: { workers: number; text: string; batch: number; knee: number; latency: number }[];
  table: TableData;
}

export interface ServiceData {
  points: [batch: number, value: number][];
  medians: [batch: number, value: number][];
  total: number;
  rows: Rows;
  how: string;
  overhead: number;
  source: string;
}

export interface ChecksData {
  rows: {
    figure: string;
    unit: Unit;
    rate: string;
    predicted: [value: number, low: number | null, high: number | null];
    measured: [value: number, low: number | null, high: number | null];
    inside: boolean | null;
  }[];
  table: TableData;
  note: string;
}

export interface MethodData {
  parts: [string, Rows][];
  figures: [title: string, how: string, rows: Rows, notes: string[]][];
}

export interface EnvironmentData {
  groups: [string, Rows][];
  findings: [severity: string, title: string, evidence: string, remedy: string][];
  created: string;
}

export type PageParts = Record<string, unknown> & { tree?: TreeData };

export interface PageData {
  title: string;
  parts: PageParts;
  /** Sets of parts of which one is shown at a time. */
  choice?: { label: string; view: string; first: number; options: { name: string; parts: PageParts }[] };
}

export function read(): PageData {
  return JSON.parse(document.getElementById("data")!.textContent!);
}
