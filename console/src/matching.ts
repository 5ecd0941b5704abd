/** The parts of a path that a pattern names, or null: match("/held/{service}/{id}", "/held/orders/7"). A part may hold
 * anything, a slash too: it is quoted. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [i, part] of wanted.entries()) {
    const text = given[i] ?? "";
    if (part.startsWith("{")) {
      if (!text) return null;
      try {
        found[part.slice(1, -1)] = decodeURIComponent(text);
      } catch {
        return null;
      }
    } else if (part !== text) return null;
  }
  return found;
}
