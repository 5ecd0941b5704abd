// What this person may press. The server decides; this says it before, so that nobody presses in vain.
import { signal } from "@preact/signals";
import { ask } from "./api";
import { reason } from "./reason";
import { session } from "./session";

interface May {
  name: string;
  role: string;
  may: boolean;
}

const acts = signal<ReadonlyMap<string, May>>(new Map());

export async function learnRights(): Promise<void> {
  try {
    acts.value = new Map((await ask<May[]>("/acts")).data.map((one) => [one.name, one]));
  } catch {
    // Then the server says no at the press.
  }
}

/** Why they may not press it; empty where they may, or where nobody knows. */
export function barred(name: string): string {
  const one = acts.value.get(name);
  if (!one || one.may) return "";
  const mine = session.value?.who?.roles ?? [];
  return reason(one.role, mine);
}
