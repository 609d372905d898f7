// What the server answers; see live/history_view.py and live/monitor_view.py.

import type { TrendData } from "../data";
import type { Unit } from "../format";

export interface Failure {
  id: string;
  message: string;
  cause: string;
  remedy: string;
}

export interface State {
  kind: "alert" | "steady" | "unknown" | "unruled" | "pending" | "silent" | "failed";
  alerts: string[];
  /** Figures with too few runs. */
  unjudged: string[];
}

export interface Figure {
  name: string;
  value: string;
  how: string;
}

export interface ModelRow {
  key: string;
  target: string;
  place: string;
  runs: number;
  newest: string;
  main: Figure | null;
  side: (Figure | null)[];
  curve: number[];
  state: State;
}

export interface MonitorRow {
  key: string;
  name: string;
  labels: string;
  unit: Unit;
  /** Seconds since 1970. */
  end: number;
  age: number;
  rate: number | null;
  middle: number | null;
  high: number | null;
  errors: number | null;
  curve: (number | null)[];
  state: State;
}

export interface Fleet {
  history:
    | { store: string; targets: number; fitting: number; runs: number; rows: ModelRow[]; error?: undefined }
    | { error: Failure }
    | null;
  monitors: { folder: string; rows: MonitorRow[]; error: Failure | null } | null;
}

export interface Model {
  key: string;
  target: string;
  runs: number;
  series: { key: string; label: string; model: string; machine: string; workload: string; runs: number; newest: string }[];
  chosen: string;
  metrics: string[];
  newest: { uuid: string; created: string; commit: string; dirty: boolean | null; message: string; torch: string }[];
  state: State;
}

export interface Trend extends TrendData {
  metric: string;
  runs: number;
  unit: Unit;
  at: number[];
  values: number[];
  /** Runs before those of `series`. */
  first: number;
  newest: string[];
  pending: boolean;
}

export interface Monitor {
  key: string;
  name: string;
  labels: [name: string, text: string][];
  unit: Unit;
  state: State;
  /** Of each window; seconds since 1970. */
  end: number[];
  lines: Record<string, (number | null)[]>;
  rate: (number | null)[];
  /** Per second, as `rate`. */
  failed: (number | null)[];
  window: Distribution | null;
  layers: { key: string; layer: string; middle: number | null; high: number | null; measured: number }[];
}

/** One window: `edges` are the bounds of `counts`. */
export interface Distribution {
  begin: number;
  end: number;
  count: number;
  measured: number;
  zero: number;
  rate: number | null;
  mean: number | null;
  min: number | null;
  max: number | null;
  percentiles: Record<string, number | null>;
  errors: [kind: string, count: number][];
  edges: number[];
  counts: number[];
}
