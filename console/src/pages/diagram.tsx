// A graph, laid out by dagre and drawn here. It says nothing by colour alone: what is marked says so in words.
import { Graph, layout } from "@dagrejs/dagre";
import { useMemo } from "preact/hooks";
import { cls } from "../ui";

export interface Node {
  id: string;
  kind: "start" | "step" | "join" | "on" | "deadline" | "undo" | "end";
  label: string;
  more: string[];
  mark: "" | "done" | "undone" | "here" | "failed" | "next" | "armed";
}
export interface Edge {
  source: string;
  target: string;
  label: string;
}
export interface Drawn {
  nodes: Node[];
  edges: Edge[];
}

const LETTER = 7.2;
const LINE = 15;
const SAYS = { "": "", done: "done", undone: "undone", here: "it stands here", failed: "it is stuck here", next: "waits for this", armed: "is set" } as const;

export function Diagram({ drawn, label }: { drawn: Drawn; label: string }) {
  const graph = useMemo(() => laidOut(drawn), [drawn]);
  return (
    <figure class="diagram">
      <div class="diagram-frame" tabIndex={0} role="region" aria-label={label}>
        <svg width={graph.width} height={graph.height} viewBox={`0 0 ${graph.width} ${graph.height}`} role="img" aria-label={label}>
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
              <path d="M0 0 8 4 0 8Z" class="diagram-head" />
            </marker>
          </defs>
          {graph.edges.map((edge) => (
            <g key={`${edge.source} ${edge.target} ${edge.label}`} class={cls("diagram-edge", edge.target.startsWith("deadline:") && "diagram-dashed")}>
              <path d={edge.path} marker-end="url(#arrow)" />
              {edge.label && (
                <text x={edge.x} y={edge.y}>
                  {edge.label}
                </text>
              )}
            </g>
          ))}
          {graph.nodes.map(({ node, x, y, width, height, lines }) => (
            <g key={node.id} class={cls("diagram-node", `diagram-${node.kind}`, node.mark && `diagram-is-${node.mark}`)} transform={`translate(${x - width / 2} ${y - height / 2})`}>
              <rect width={width} height={height} rx={node.kind === "start" || node.kind === "end" ? height / 2 : 6} />
              {lines.map((line, i) => (
                <text key={i} x={width / 2} y={LINE * (i + 1) + 1} class={cls(i === 0 && "diagram-name", i > 0 && "diagram-more")}>
                  {line}
                </text>
              ))}
            </g>
          ))}
        </svg>
      </div>
    </figure>
  );
}

function laidOut({ nodes, edges }: Drawn) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 34, edgesep: 14, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  const texts = new Map(nodes.map((node) => [node.id, [`${mark(node)}${node.label}`, ...(node.mark ? [SAYS[node.mark]] : []), ...node.more]]));
  for (const node of nodes) {
    const lines = texts.get(node.id) ?? [];
    graph.setNode(node.id, { width: Math.max(72, ...lines.map((line) => line.length * LETTER + 24)), height: lines.length * LINE + 12 });
  }
  edges.forEach((edge, i) => {
    graph.setEdge(edge.source, edge.target, { width: edge.label ? edge.label.length * 5.8 + 8 : 0, height: edge.label ? 14 : 0, labelpos: "c" }, String(i));
  });
  layout(graph);
  const whole = graph.graph() as { width?: number; height?: number };
  return {
    width: Math.ceil(whole.width ?? 0),
    height: Math.ceil(whole.height ?? 0),
    nodes: nodes.map((node) => ({ node, lines: texts.get(node.id) ?? [], ...(graph.node(node.id) as { x: number; y: number; width: number; height: number }) })),
    edges: edges.map((edge, i) => {
      const found = graph.edge(edge.source, edge.target, String(i)) as { points: { x: number; y: number }[]; x?: number; y?: number };
      return { ...edge, path: curve(found.points), x: found.x ?? 0, y: (found.y ?? 0) + 4 };
    }),
  };
}

const mark = (node: Node): string => ({ "": "", done: "✓ ", undone: "↩ ", here: "● ", failed: "✕ ", next: "○ ", armed: "◷ " })[node.mark];

/** Through the middles of the bends. */
function curve(points: readonly { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  const last = rest.pop();
  if (!first || !last) return "";
  let path = `M${first.x} ${first.y}`;
  rest.forEach((bend, i) => {
    const next = rest[i + 1] ?? last;
    const end = i === rest.length - 1 ? last : { x: (bend.x + next.x) / 2, y: (bend.y + next.y) / 2 };
    path += `Q${bend.x} ${bend.y} ${end.x} ${end.y}`;
  });
  return rest.length ? path : `${path}L${last.x} ${last.y}`;
}
