// The drawing: zoom by wheel, pinch or keys, pan by dragging or arrows, walk by Tab.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { go, href } from "../router";
import { Button, cls, count, rate, span } from "../ui";
import { type Drawing, LINE, type Node, type View } from "./graph";

interface Camera {
  x: number;
  y: number;
  scale: number;
}

/** Smaller than that, names cannot be read. */
const READABLE = 0.6;
const MARKS = { service: "▣", topic: "≡", consumer: "▸", saga: "⟳", "read model": "◫" } as const;

interface Props {
  label: string;
  view: View;
  drawing: Drawing;
  /** Ids that a search found; the others fade. */
  found: ReadonlySet<string> | null;
  to: (node: Node) => string;
}

export function Canvas({ label, view, drawing, found, to }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const moved = useRef(false);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [camera, setCamera] = useState<Camera | null>(null);
  const [near, setNear] = useState<string | null>(null);

  useLayoutEffect(() => {
    const room = frame.current;
    if (!room) return;
    const watch = new ResizeObserver(() => setSize({ width: room.clientWidth, height: room.clientHeight }));
    watch.observe(room);
    return () => watch.disconnect();
  }, []);

  const whole = (): Camera => {
    const scale = Math.min(1.1, Math.max(0.1, Math.min(size.width / drawing.width, size.height / drawing.height)));
    return { scale, x: (size.width - drawing.width * scale) / 2, y: (size.height - drawing.height * scale) / 2 };
  };
  // What would be too small to be read begins at its middle instead, and is moved.
  const begun = (): Camera => {
    const fit = whole();
    const scale = Math.max(fit.scale, READABLE);
    return scale === fit.scale ? fit : { scale, x: (size.width - drawing.width * scale) / 2, y: (size.height - drawing.height * scale) / 2 };
  };
  const seen = camera ?? begun();
  useEffect(() => setCamera(null), [drawing]);

  const zoom = (by: number, x = size.width / 2, y = size.height / 2): void => {
    setCamera((was) => {
      const from = was ?? begun();
      const scale = Math.min(3, Math.max(0.1, from.scale * by));
      return { scale, x: x - ((x - from.x) / from.scale) * scale, y: y - ((y - from.y) / from.scale) * scale };
    });
  };
  const pan = (x: number, y: number): void => setCamera((was) => ({ ...(was ?? begun()), x: (was ?? begun()).x + x, y: (was ?? begun()).y + y }));

  useEffect(() => {
    const room = frame.current;
    if (!room) return;
    // A wheel that only scrolls the page must not be caught: with Ctrl, or as a pinch, it zooms.
    const wheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const place = room.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), event.clientX - place.left, event.clientY - place.top);
    };
    room.addEventListener("wheel", wheel, { passive: false });
    return () => room.removeEventListener("wheel", wheel);
  });

  const keys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60;
    const does: Record<string, () => void> = {
      ArrowLeft: () => pan(step, 0),
      ArrowRight: () => pan(-step, 0),
      ArrowUp: () => pan(0, step),
      ArrowDown: () => pan(0, -step),
      "+": () => zoom(1.25),
      "=": () => zoom(1.25),
      "-": () => zoom(0.8),
      "0": () => setCamera(whole()),
    };
    const one = does[event.key];
    if (one) {
      event.preventDefault();
      one();
    }
  };

  const down = (event: PointerEvent): void => {
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved.current = false;
  };
  const move = (event: PointerEvent): void => {
    const before = pointers.current.get(event.pointerId);
    if (!before) return;
    const others = [...pointers.current].filter(([id]) => id !== event.pointerId).map(([, one]) => one);
    const other = others[0];
    const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
    if (!moved.current && !other && Math.hypot(dx, dy) < 4) return;
    moved.current = true;
    frame.current?.setPointerCapture(event.pointerId);
    pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (other) {
      const place = frame.current?.getBoundingClientRect();
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      const is = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      if (was > 0 && place) zoom(is / was, (event.clientX + other.x) / 2 - place.left, (event.clientY + other.y) / 2 - place.top);
    } else pan(dx, dy);
  };
  const up = (event: PointerEvent): void => void pointers.current.delete(event.pointerId);

  const rates = new Map(view.edges.map((edge) => [`${edge.source} ${edge.target}`, edge]));
  return (
    <div class="map">
      <div class="map-tools">
        <Button small onClick={() => zoom(1.25)} aria-label="Zoom in">+</Button>
        <Button small onClick={() => zoom(0.8)} aria-label="Zoom out">−</Button>
        <Button small onClick={() => setCamera(whole())}>Fit</Button>
        <span class="muted map-hint">Drag to move, Ctrl and wheel to zoom; arrows, + and − on the keyboard.</span>
      </div>
      <div ref={frame} class="map-frame" role="group" aria-label={label} tabIndex={0} onKeyDown={keys} onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={up}>
        <svg width="100%" height="100%" aria-hidden={size.width === 0}>
          <defs>
            <marker id="map-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
              <path class="map-arrow" d="M0 0L8 4L0 8Z" />
            </marker>
          </defs>
          {size.width > 0 && (
            <g transform={`translate(${seen.x.toFixed(1)} ${seen.y.toFixed(1)}) scale(${seen.scale.toFixed(3)})`}>
              {drawing.lines.map((line) => {
                const edge = rates.get(line.key);
                const flows = (edge?.rate ?? 0) > 0;
                const mine = near !== null && (line.source === near || line.target === near);
                const faded = found !== null && !found.has(line.source) && !found.has(line.target);
                return (
                  <g key={line.key} class={cls("map-edge", flows && "map-flows", mine && "map-mine", (faded || (near !== null && !mine)) && "map-faded")}>
                    <path d={line.path} marker-end="url(#map-arrow)" />
                    {edge && mine && (flows || edge.label) && (
                      <text x={line.middle.x} y={line.middle.y - 4} text-anchor="middle">
                        {[edge.label, flows ? rate(edge.rate) : ""].filter(Boolean).join(", ")}
                      </text>
                    )}
                  </g>
                );
              })}
              {view.nodes.map((node) => (
                <Shape key={node.id} node={node} drawing={drawing} faded={found !== null && !found.has(node.id)} to={to(node)} onNear={setNear} moved={() => moved.current} />
              ))}
            </g>
          )}
        </svg>
      </div>
    </div>
  );
}

function figures(node: Node): string {
  const said = [node.rate === null ? "" : rate(node.rate)];
  if (node.waiting) said.push(`${count(node.waiting)} waiting`);
  if (node.lag && node.lag >= 1) said.push(`${span(node.lag)} behind`);
  if (node.held) said.push(`${count(node.held)} held`);
  return said.filter(Boolean).join(" · ");
}

const GRAVITY = { now: "needs a person", soon: "takes too long", wait: "goes on by itself" } as const;

function Shape({ node, drawing, faded, to, onNear, moved }: { node: Node; drawing: Drawing; faded: boolean; to: string; onNear: (id: string | null) => void; moved: () => boolean }) {
  const box = drawing.boxes.get(node.id);
  if (!box) return null;
  const said = figures(node);
  const label = [`${node.kind} ${node.name}`, said, node.gravity ? GRAVITY[node.gravity] : "", ...node.troubles].filter(Boolean).join("; ");
  const click = (event: MouseEvent): void => {
    if (moved()) return event.preventDefault();
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a
      href={href(to)}
      draggable={false}
      aria-label={label}
      class={cls("map-node", `map-${node.kind.replace(" ", "-")}`, node.gravity && `map-is-${node.gravity}`, faded && "map-faded")}
      onClick={click}
      onMouseEnter={() => onNear(node.id)}
      onMouseLeave={() => onNear(null)}
      onFocus={() => onNear(node.id)}
      onBlur={() => onNear(null)}
    >
      <title>{label}</title>
      <rect x={box.x} y={box.y} width={box.width} height={box.height} rx={node.kind === "topic" ? box.height / 2 : 7} />
      {box.lines.map((line, i) => (
        <text key={line} class="map-name" aria-hidden="true" x={box.x + 12} y={box.y + 22 + i * LINE}>
          {i === 0 ? `${MARKS[node.kind]} ${line}` : line}
        </text>
      ))}
      <text class="map-figures" aria-hidden="true" x={box.x + 12} y={box.y + 21 + box.lines.length * LINE}>
        {node.gravity === "now" ? "! " : ""}
        {said || "no figures yet"}
      </text>
    </a>
  );
}
