// What the doctor found, by finding: what many stores have in common is said once.

export type Judgement = "ok" | "warn" | "fail";

export interface Check {
  name: string;
  found: string;
  judgement: Judgement;
  fix: string;
}

export interface Examined {
  service: string;
  part: "store" | "broker";
  place: string;
  judgement: Judgement;
  checks: Check[];
  promise: { text: string; holds: boolean; because: string }[];
}

export interface Finding {
  check: Check;
  places: Examined[];
}

const NAMED = 3;

/** All that is not fine: what is broken first, then what most places have. */
export function findings(examined: readonly Examined[]): Finding[] {
  const found = new Map<string, Finding>();
  for (const one of examined)
    for (const check of one.checks) {
      if (check.judgement === "ok") continue;
      const same = JSON.stringify([check.judgement, check.name, check.found, check.fix]);
      const known = found.get(same);
      if (known) known.places.push(one);
      else found.set(same, { check, places: [one] });
    }
  const grave = (one: Finding): number => (one.check.judgement === "fail" ? 0 : 1);
  return [...found.values()].sort((a, b) => grave(a) - grave(b) || b.places.length - a.places.length);
}

/** Where it was found: by name, or how many where they are many. */
export function where(places: readonly Examined[]): string {
  if (places.length <= NAMED) return places.map((one) => `${one.part} of ${one.service}`).join(", ");
  const all = (part: Examined["part"]): number => places.filter((one) => one.part === part).length;
  const some = (number: number, part: string): string[] => (number ? [`${number} ${part}${number === 1 ? "" : "s"}`] : []);
  return [...some(all("store"), "store"), ...some(all("broker"), "broker")].join(" and ");
}
