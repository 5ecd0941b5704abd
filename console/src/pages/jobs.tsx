import { toneOf, which, type Job } from "../acting/job";
import { at, query, useData, type Listing } from "../api";
import { Age, Badge, Link, Page, Table } from "../ui";
import type { PageProps } from "../routes";

export default function Jobs({ query: asked }: PageProps) {
  const jobs = useData<Listing<Job>>(query("/jobs", { service: asked.get("service"), after: asked.get("after") }), { every: 2_000, live: "jobs" });
  return (
    <Page title="Jobs" says="What is done to many things, one after the other. A job goes on when the console is restarted, and deals with nothing twice." data={jobs}>
      <Table
        caption="Jobs, newest first"
        rows={jobs.data?.items ?? []}
        id={(one) => one.id}
        next={jobs.data?.next}
        empty="No job was begun yet. Retry all, skip all and the like begin one."
        columns={[
          { title: "State", cell: (one) => <Badge tone={toneOf[one.state]}>{one.state}</Badge> },
          {
            title: "Job",
            wide: true,
            cell: (one) => (
              <>
                <Link to={at`/jobs/${one.service}/${one.id}`}>{one.title}</Link> <span class="muted">{which(one)}</span>
              </>
            ),
          },
          { title: "Service", cell: (one) => one.service },
          { title: "How it stands", wide: true, cell: (one) => one.says },
          { title: "By", cell: (one) => one.by },
          { title: "Begun", cell: (one) => <Age since={one.created_at} /> },
        ]}
      />
    </Page>
  );
}
