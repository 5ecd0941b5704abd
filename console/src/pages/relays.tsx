import { useData } from "../api";
import { Age, Badge, Figure, Figures, Page, Section, Table, count, counted, span } from "../ui";
import { gravestFirst, state } from "./sending";

interface Shard {
  number: number;
  epoch: string;
  process: string | null;
  relay: string | null;
  left: number;
}
interface Store {
  service: string;
  services: string[];
  shards: Shard[];
  leased: number;
  free: number;
  taken_over: number;
  unsent: number;
  oldest: number;
  wake: string;
  processes: string[];
}

export default function Relays() {
  const found = useData<{ stores: Store[] }>("/relays", { live: "relays", every: 10_000 });
  const stores = found.data?.stores ?? [];
  const alone = stores.filter((one) => one.leased === 0 && one.unsent > 0);
  const shards = stores.reduce((all, one) => all + one.shards.length, 0);
  const free = stores.reduce((all, one) => all + one.free, 0);
  return (
    <Page title="Relays and shards" says="Each outbox is cut into shards by key. A relay leases some, sends what is in them in order, and renews the lease every few seconds." data={found}>
      <p class="verdict">
        {alone.length ? `Events wait in ${counted(alone.length, "outbox", "outboxes")} that no relay holds: ${alone.map((one) => one.service).join(", ")}. Start one with posthouse run.` : free ? "Some shards are free, and nothing waits in those." : "Every shard is held by a relay."}
      </p>
      <Figures>
        <Figure label="Shards" value={count(shards)} says={`of ${counted(stores.length, "store")}`} />
        <Figure label="Free" value={count(free)} says="nobody leases them" tone={alone.length ? "bad" : "neutral"} />
        <Figure label="Processes" value={count(new Set(stores.flatMap((one) => one.processes)).size)} says="run a relay" />
      </Figures>
      <Table
        caption="Outboxes and their relays"
        rows={gravestFirst(stores)}
        id={(row) => row.service}
        columns={[
          { title: "Outbox of", cell: (row) => <strong class="wrap">{row.services.join(", ")}</strong> },
          { title: "State", cell: (row) => <Badge tone={state(row).tone}>{state(row).word}</Badge> },
          { title: "Leased", cell: (row) => `${count(row.leased)} of ${count(row.shards.length)}`, end: true },
          { title: "Held by", cell: (row) => <span class="mono wrap">{holders(row).map(([name, number]) => `${name} (${number})`).join(", ") || "nobody"}</span>, wide: true },
          { title: "Taken over", cell: (row) => <span title="How often shards changed hands">{counted(row.taken_over, "time")}</span>, end: true },
          { title: "Unsent", cell: (row) => count(row.unsent), end: true },
          { title: "Oldest", cell: (row) => <Age seconds={row.unsent ? row.oldest : null} />, end: true },
          { title: "Learns of a commit by", cell: (row) => <span class="wrap">{row.wake}</span>, spare: true },
        ]}
      />
      <Section title="Every shard" says="The epoch grows whenever a shard changes hands: a relay of an older epoch can settle nothing.">
      {stores.map((one) => (
        <details key={one.service} class="fold">
          <summary>
            {counted(one.shards.length, "shard")} of {one.service}
          </summary>
          <ul class="shards">
            {one.shards.map((shard) => (
              <li key={shard.number} class={shard.process || shard.relay ? "shard shard-held" : "shard"}>
                <strong>{shard.number}</strong>
                <span class="wrap mono">{shard.process ?? shard.relay ?? "free"}</span>
                <span class="muted">
                  epoch {shard.epoch}
                  {shard.relay ? `, ${span(shard.left)} left` : ""}
                </span>
              </li>
            ))}
          </ul>
        </details>
      ))}
      </Section>
    </Page>
  );
}

function holders(store: Store): [string, number][] {
  const found = new Map<string, number>();
  for (const { process, relay } of store.shards) {
    const name = process ?? relay;
    if (name) found.set(name, (found.get(name) ?? 0) + 1);
  }
  return [...found];
}
