// JSON as it was stored, cut into coloured pieces and laid out anew. No number is read as one: 2⁵³ + 1 stays what it is.

export type Kind = "key" | "string" | "number" | "word" | "mark" | "space";

export interface Token {
  kind: Kind;
  text: string;
}

const PIECE = /\s+|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/gy;

/** The pieces of a text, or null where it is no JSON: then it is shown as it is. */
export function tokens(text: string): Token[] | null {
  try {
    JSON.parse(text); // whether it is JSON, and nothing else of it
  } catch {
    return null;
  }
  const found: Token[] = [];
  PIECE.lastIndex = 0;
  for (let hit = PIECE.exec(text); hit; hit = PIECE.exec(text)) {
    const piece = hit[0];
    const kind = kindOf(piece);
    if (piece === ":") {
      const key = found.at(-1);
      if (key?.kind === "string") key.kind = "key";
    }
    if (kind !== "space") found.push({ kind, text: piece });
  }
  return found;
}

function kindOf(piece: string): Kind {
  if (/^\s/.test(piece)) return "space";
  if (piece.length > 1 && piece.startsWith('"')) return "string";
  if (/^-?\d/.test(piece)) return "number";
  return /^[tfn]/.test(piece) ? "word" : "mark";
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
