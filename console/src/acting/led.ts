import { at, query } from "../paths";

/** Where one sees what an act has done: its job, the thing that it was done to, or the operators' log. */
export function led(name: string, params: Record<string, unknown> & { service: string }, job: string | null): { to: string; label: string } {
  const text = (field: string): string => String(params[field] ?? "");
  if (job) return { to: at`/jobs/${params.service}/${job}`, label: "See how far it is" };
  if (/^held\.\w+$/.test(name) && params.id) return { to: at`/held/${params.service}/${text("id")}`, label: `See held event ${text("id")}` };
  if (/^saga\.\w+$/.test(name) && params.id)
    return { to: query(at`/sagas/${params.service}/${text("saga")}/${text("id")}`, { tenant: text("tenant"), attempt: text("attempt") }), label: "See the saga" };
  if (name.startsWith("grant.")) return { to: "/grants", label: "See the grants" };
  return { to: "/log", label: "See the operators' log" };
}
