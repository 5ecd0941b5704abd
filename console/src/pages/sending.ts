// How an outbox is sent: by relays, by some, by nobody.

export interface Sending {
  leased: number;
  free: number;
  unsent: number;
}

export const state = (one: Sending) =>
  one.free === 0 ? ({ tone: "good", word: "sending" } as const) : one.leased ? ({ tone: "warn", word: "some are free" } as const) : one.unsent ? ({ tone: "bad", word: "nobody sends" } as const) : ({ tone: "neutral", word: "nobody leases" } as const);

const ORDER = ["bad", "warn", "good", "neutral"];

/** What nobody sends comes first, then what some relay lacks. */
export const gravestFirst = <T extends Sending>(stores: readonly T[]): T[] =>
  [...stores].sort((a, b) => ORDER.indexOf(state(a).tone) - ORDER.indexOf(state(b).tone));
