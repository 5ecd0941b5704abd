/** In words: which role is needed, and which there are. */
export function reason(role: string, mine: readonly string[]): string {
  const included = mine.includes(role) || mine.includes("admin");
  if (included) return "You may not press this: it concerns tenants or payloads that you may not see.";
  return `You may not press this: it needs the role ${role}, and yours is ${mine.join(", ") || "none"}.`;
}
