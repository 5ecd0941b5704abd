// The Markdown of our own runbooks, as a tree: no markup of anybody goes into a page.

export type Inline = { kind: "text" | "code" | "strong" | "em"; text: string } | { kind: "link"; text: string; to: string };

export type Block =
  | { kind: "heading"; level: number; text: string }
  | { kind: "paragraph"; inlines: Inline[] }
  | { kind: "code"; text: string }
  | { kind: "list"; ordered: boolean; items: { inlines: Inline[]; inside: Inline[][] }[] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] };

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(([^)\s]+)\)/g;

export function inline(text: string): Inline[] {
  const found: Inline[] = [];
  let at = 0;
  for (const hit of text.matchAll(INLINE)) {
    if (hit.index > at) found.push({ kind: "text", text: text.slice(at, hit.index) });
    const [, code, strong, em, words, to] = hit;
    if (code !== undefined) found.push({ kind: "code", text: code });
    else if (strong !== undefined) found.push({ kind: "strong", text: strong });
    else if (em !== undefined) found.push({ kind: "em", text: em });
    else found.push({ kind: "link", text: words ?? "", to: to ?? "" });
    at = hit.index + hit[0].length;
  }
  if (at < text.length) found.push({ kind: "text", text: text.slice(at) });
  return found;
}

const ITEM = /^( *)(?:([0-9]+)\.|-) +(.*)$/;
const cells = (line: string): Inline[][] => line.replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
const special = (line: string): boolean => !line.trim() || line.startsWith("```") || line.startsWith("#") || line.startsWith("|") || line.startsWith("<!--") || ITEM.test(line);

export function blocks(text: string): Block[] {
  const lines = text.split("\n");
  const found: Block[] = [];
  let i = 0;
  const taken = (good: (line: string) => boolean): string[] => {
    const start = i;
    while (i < lines.length && good(lines[i] ?? "")) i++;
    return lines.slice(start, i);
  };
  while (i < lines.length) {
    const line = lines[i] ?? "";
    const heading = /^(#+) (.*)$/.exec(line);
    if (heading) {
      found.push({ kind: "heading", level: (heading[1] ?? "#").length, text: heading[2] ?? "" });
      i++;
    } else if (line.startsWith("```")) {
      i++;
      found.push({ kind: "code", text: taken((one) => !one.startsWith("```")).join("\n") });
      i++;
    } else if (line.startsWith("|")) {
      const [head = "", , ...rows] = taken((one) => one.startsWith("|"));
      found.push({ kind: "table", head: cells(head), rows: rows.map(cells) });
    } else if (ITEM.test(line)) {
      const items: { inlines: Inline[]; inside: Inline[][] }[] = [];
      const ordered = /^ *[0-9]/.test(line);
      while (i < lines.length && ITEM.test(lines[i] ?? "")) {
        const [, indent = "", , words = ""] = ITEM.exec(lines[i] ?? "") ?? [];
        i++;
        const rest = taken((one) => !special(one)).map((one) => one.trim());
        const inlines = inline([words, ...rest].join(" "));
        const above = items.at(-1);
        if (indent.length > 1 && above) above.inside.push(inlines);
        else items.push({ inlines, inside: [] });
      }
      found.push({ kind: "list", ordered, items });
    } else if (!line.trim() || line.startsWith("<!--")) i++;
    else found.push({ kind: "paragraph", inlines: inline(taken((one) => !special(one)).join(" ")) });
  }
  return found;
}
