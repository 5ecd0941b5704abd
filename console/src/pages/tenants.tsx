// Who says most, and for whom most is held.
import { query as asked, useData } from "../api";
import { requery } from "../router";
import type { PageProps } from "../routes";
import { Age, Link, Notice, Page, Table, Tabs, count, counted } from "../ui";

interface Tenant {
  tenant: string;
  events: number;
  share: number;
  held: number;
  dead: number;
  oldest: number | null;
  services: string[];
}

interface Tenants {
  items: Tenant[];
  notes: string[];
  looked: number;
  more: number;
}

const ORDERS = [
  { id: "events", title: "By events" },
  { id: "held", title: "By held" },
  { id: "dead", title: "By dead" },
  { id: "age", title: "By age" },
];

export default function TenantsPage({ query }: PageProps) {
  const by = query.get("by") ?? "events";
  const tenants = useData<Tenants>(asked("/tenants", { by }), { every: 10_000 });
  const found = tenants.data;
  return (
    <Page title="Tenants" says="Who says most lately, and for whom events are held." data={tenants}>
      {found && (
        <>
          <Tabs label="Order" tabs={ORDERS} current={by} onPick={(id) => requery({ by: id === "events" ? null : id })}>
            <Table
              caption="Tenants"
              rows={found.items}
              id={(one) => one.tenant}
              empty="No tenant has said anything that is still here, and nothing is held."
              columns={[
                { title: "Tenant", cell: (one) => one.tenant },
                { title: "Events seen", end: true, cell: (one) => count(one.events) },
                { title: "Share", cell: (one) => <Share share={one.share} /> },
                { title: "Held", end: true, cell: (one) => (one.held ? <Link to={asked("/held", { tenant: one.tenant })}>{count(one.held)}</Link> : "0") },
                { title: "Dead", end: true, cell: (one) => (one.dead ? <Link to={asked("/held", { tenant: one.tenant, state: "dead" })}>{count(one.dead)}</Link> : "0") },
                { title: "Oldest held", end: true, cell: (one) => <Age seconds={one.oldest} /> },
                { title: "Seen in", spare: true, cell: (one) => one.services.join(" · ") },
              ]}
            />
          </Tabs>
          {found.more > 0 && <p class="muted">{counted(found.more, "tenant")} more were seen and are not listed.</p>}
          <Notice title="What these figures are.">{found.notes.join(" ")}</Notice>
        </>
      )}
    </Page>
  );
}

function Share({ share }: { share: number }) {
  return (
    <span class="share">
      <meter min={0} max={1} value={share} aria-label="Share of the events seen" />
      <span>{(share * 100).toFixed(share < 0.1 ? 1 : 0)} %</span>
    </span>
  );
}
