// The graph as it is drawn: which nodes and edges a view has, and where each of them stands.
import { Graph, layout } from "@dagrejs/dagre";

export type Gravity = "now" | "soon" | "wait";
export type Kind = "service" | "topic" | "consumer" | "saga" | "read model";

export interface Node {
  id: string;
  kind: Kind;
  name: string;
  service: string;
  about: string[];
  rate: number | null;
  lag: number | null;
  waiting: number | null;
  held: number;
  gravity: Gravity | null;
  troubles: string[];
}

export interface Edge {
  source: string;
  target: string;
  rate: number | null;
}

export interface View {
  nodes: Node[];
  edges: (Edge & { label?: string })[];
}

export interface Box {
  id: string;
  x: number;
  y: number;
  width: number;
  height: number;
  lines: string[];
}

export interface Line {
  key: string;
  source: string;
  target: string;
  path: string;
  middle: { x: number; y: number };
}

export interface Drawing {
  width: number;
  height: number;
  boxes: Map<string, Box>;
  lines: Line[];
}

const CHARACTER = 9.1;
const MOST = 26;
export const LINE = 19;
const LEAST: Record<Kind, number> = { service: 168, topic: 168, consumer: 214, saga: 214, "read model": 214 };

/** Only services, and what flows between each two of them. */
export function services({ nodes, edges }: View): View {
  const by = new Map(nodes.map((node) => [node.id, node]));
  const readers = new Map<string, string[]>();
  const writers = new Map<string, string[]>();
  for (const { source, target } of edges) {
    const from = by.get(source);
    const to = by.get(target);
    if (from?.kind === "topic" && to) readers.set(source, [...(readers.get(source) ?? []), to.service]);
    if (to?.kind === "topic" && from?.kind === "service") writers.set(target, [...(writers.get(target) ?? []), from.service]);
  }
  const pairs = new Map<string, { source: string; target: string; topics: Set<string>; rate: number | null }>();
  for (const [topic, those] of readers) {
    for (const from of writers.get(topic) ?? []) {
      for (const to of new Set(those)) {
        if (from === to) continue;
        const key = `${from} ${to}`;
        const pair = pairs.get(key) ?? { source: `service:${from}`, target: `service:${to}`, topics: new Set<string>(), rate: null };
        pair.topics.add(topic);
        const rate = by.get(topic)?.rate;
        if (rate !== null && rate !== undefined) pair.rate = (pair.rate ?? 0) + rate;
        pairs.set(key, pair);
      }
    }
  }
  const worst = (service: string): Node[] => nodes.filter((node) => node.service === service && node.gravity !== null);
  const order: (Gravity | null)[] = ["now", "soon", "wait", null];
  return {
    nodes: nodes
      .filter((node) => node.kind === "service")
      .map((node) => {
        const inside = worst(node.name);
        const gravity = order.find((one) => one === node.gravity || inside.some((other) => other.gravity === one)) ?? null;
        return {
          ...node,
          gravity,
          held: nodes.filter((other) => other.service === node.name).reduce((all, other) => all + other.held, 0),
        };
      }),
    edges: [...pairs.values()].map(({ source, target, topics, rate }) => ({ source, target, rate, label: topics.size > 1 ? `${topics.size} topics` : "" })),
  };
}

/** One service with all that is its own, and whoever is one step away. */
export function around({ nodes, edges }: View, service: string): View {
  const by = new Map(nodes.map((node) => [node.id, node]));
  const own = new Set(nodes.filter((node) => node.service === service).map((node) => node.id));
  const near = new Set(own);
  for (const { source, target } of edges) {
    if (own.has(source) && by.get(source)?.kind === "topic") near.add(target);
    if (own.has(target) && by.get(target)?.kind !== "topic") near.add(source);
  }
  return { nodes: nodes.filter((node) => near.has(node.id)), edges: edges.filter((edge) => near.has(edge.source) && near.has(edge.target) && (own.has(edge.source) || own.has(edge.target))) };
}

/** A name in at most two lines, broken where a word ends. */
export function wrapped(name: string): string[] {
  if (name.length <= MOST) return [name];
  const cut = Math.max(...[".", "_", "-"].map((mark) => name.lastIndexOf(mark, MOST)));
  const first = name.slice(0, cut > 4 ? cut + 1 : MOST);
  const rest = name.slice(first.length);
  return [first, rest.length > MOST + 2 ? `${rest.slice(0, MOST + 1)}…` : rest];
}

const key = (edge: Edge): string => `${edge.source} ${edge.target}`;

/** Where everything stands, from left to right as events flow. */
export function drawn({ nodes, edges }: View): Drawing {
  const graph = new Graph({ multigraph: false });
  graph.setGraph({ rankdir: "LR", nodesep: 12, edgesep: 5, ranksep: 48, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  const texts = new Map(nodes.map((node) => [node.id, wrapped(node.name)]));
  for (const node of nodes) {
    const lines = texts.get(node.id) ?? [];
    const longest = Math.max(...lines.map((line, i) => line.length + (i ? 0 : 2)));
    graph.setNode(node.id, { width: Math.max(LEAST[node.kind], longest * CHARACTER + 26), height: 32 + lines.length * LINE });
  }
  for (const edge of edges) graph.setEdge(edge.source, edge.target, {});
  layout(graph);
  const boxes = new Map<string, Box>();
  for (const node of nodes) {
    const { x, y, width, height } = graph.node(node.id) as { x: number; y: number; width: number; height: number };
    boxes.set(node.id, { id: node.id, x: x - width / 2, y: y - height / 2, width, height, lines: texts.get(node.id) ?? [] });
  }
  const lines = edges.map((edge) => {
    const { points = [] } = graph.edge(edge.source, edge.target) as { points?: { x: number; y: number }[] };
    return { key: key(edge), source: edge.source, target: edge.target, path: curve(points), middle: points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 } };
  });
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { width: Math.max(width, 1), height: Math.max(height, 1), boxes, lines };
}

function curve(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${at(first)}`;
  rest.forEach((point, i) => {
    const next = rest[i + 1];
    path += next ? `Q${at(point)} ${at({ x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 })}` : `L${at(point)}`;
  });
  return path;
}

const at = ({ x, y }: { x: number; y: number }): string => `${x.toFixed(1)} ${y.toFixed(1)}`;
