// JSON as it was stored, cut into coloured pieces and laid out anew. Nothing is parsed into numbers: 2⁵³ + 1 stays what it is.

export type Kind = "key" | "string" | "number" | "word" | "mark" | "space" | "odd";

export interface Token {
  kind: Kind;
  text: string;
}

const PIECE = /\s+|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]|[^\s{}[\],:"]+|"/gy;

/** The pieces of a text, or null where it is no JSON as far as one sees. */
export function tokens(text: string): Token[] | null {
  const found: Token[] = [];
  PIECE.lastIndex = 0;
  for (let hit = PIECE.exec(text); hit; hit = PIECE.exec(text)) {
    const piece = hit[0];
    const kind = kindOf(piece);
    if (kind === "odd") return null;
    if (piece === ":") {
      const key = found.findLast((one) => one.kind !== "space");
      if (key?.kind === "string") key.kind = "key";
    }
    if (kind !== "space") found.push({ kind, text: piece });
  }
  const first = found[0]?.text;
  return first === "{" || first === "[" || (found.length === 1 && found[0]?.kind !== "mark") ? found : null;
}

function kindOf(piece: string): Kind {
  if (/^\s/.test(piece)) return "space";
  if (piece.length > 1 && piece.startsWith('"')) return "string";
  if (/^-?\d/.test(piece)) return "number";
  if (/^(true|false|null)$/.test(piece)) return "word";
  return /^[{}[\],:]$/.test(piece) ? "mark" : "odd";
}

/** The same pieces with line breaks and indents between them. */
export function laidOut(pieces: readonly Token[]): Token[] {
  const out: Token[] = [];
  let depth = 0;
  const line = (): void => void out.push({ kind: "space", text: `\n${"  ".repeat(Math.min(depth, 40))}` });
  pieces.forEach((piece, i) => {
    const before = pieces[i - 1]?.text;
    const after = pieces[i + 1]?.text;
    const closes = piece.kind === "mark" && (piece.text === "}" || piece.text === "]");
    if (closes) {
      depth = Math.max(0, depth - 1);
      if (before !== "{" && before !== "[") line();
    }
    out.push(piece);
    if (piece.kind !== "mark") return;
    if (piece.text === "{" || piece.text === "[") {
      depth += 1;
      if (after !== "}" && after !== "]") line();
    } else if (piece.text === ",") line();
    else if (piece.text === ":") out.push({ kind: "space", text: " " });
  });
  return out;
}
