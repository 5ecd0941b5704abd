// What to do when something is stuck: the runbooks that are in the wheel, there when nothing else answers.
import type { ComponentChildren } from "preact";
import { at, useData } from "../api";
import { blocks, type Block, type Inline } from "../markdown";
import type { PageProps } from "../routes";
import { Code, Link, Page, Section, Table } from "../ui";

interface Listed {
  text: string;
  pages: { page: string; title: string }[];
}

export default function Runbooks({ params }: PageProps) {
  return params.page === undefined ? <All /> : <One page={params.page} />;
}

function All() {
  const found = useData<Listed>("/runbooks");
  return (
    <Page title="Runbooks" says="What to do about each kind of trouble: what it means, where to look, what to press, how to see that it helped." data={found}>
      {found.data && (
        <Table
          caption="Runbooks"
          rows={found.data.pages}
          id={(one) => one.page}
          columns={[
            { title: "Runbook", wide: true, cell: (one) => <Link to={at`/runbooks/${one.page}`}>{one.title}</Link> },
            { title: "Page", cell: (one) => <code>{one.page}</code> },
          ]}
        />
      )}
      {found.data && (
        <Section title="Alerts, and their pages">
          <Shown of={blocks(found.data.text).slice(1)} />
        </Section>
      )}
    </Page>
  );
}

function One({ page }: { page: string }) {
  const found = useData<{ title: string; text: string }>(at`/runbooks/${page}`);
  return (
    <Page title={found.data?.title ?? "Runbook"} path={[["Runbooks", "/runbooks"]]} data={found}>
      {found.data && <Shown of={blocks(found.data.text).slice(1)} />}
    </Page>
  );
}

const Shown = ({ of }: { of: readonly Block[] }) => (
  <div class="prose">
    {of.map((one, i) => (
      <Part key={i} of={one} />
    ))}
  </div>
);

function Part({ of }: { of: Block }): ComponentChildren {
  if (of.kind === "heading") return of.level <= 2 ? <h2>{of.text}</h2> : <h3>{of.text}</h3>;
  if (of.kind === "code") return <Code text={of.text} label="Commands, and what they print" kind="text" />;
  if (of.kind === "paragraph") return <p><Words of={of.inlines} /></p>;
  if (of.kind === "table") {
    const titles = of.head.map((cell) => cell.map((one) => one.text).join(""));
    return (
      <Table
        caption={titles.join(", ")}
        rows={of.rows}
        id={(row) => row.map((cell) => cell.map((one) => one.text).join("")).join(" ")}
        columns={titles.map((title, i) => ({ title: title.charAt(0).toUpperCase() + title.slice(1), wide: i === 1, cell: (row: Inline[][]) => <Words of={row[i] ?? []} /> }))}
      />
    );
  }
  const items = of.items.map((item, i) => (
    <li key={i}>
      <Words of={item.inlines} />
      {item.inside.length > 0 && <ul>{item.inside.map((each, j) => <li key={j}><Words of={each} /></li>)}</ul>}
    </li>
  ));
  return of.ordered ? <ol>{items}</ol> : <ul>{items}</ul>;
}

function Words({ of }: { of: readonly Inline[] }) {
  return (
    <>
      {of.map((one, i) =>
        one.kind === "code" ? <code key={i}>{one.text}</code> : one.kind === "strong" ? <strong key={i}>{one.text}</strong> : one.kind === "em" ? <em key={i}>{one.text}</em> : one.kind === "link" && one.to.endsWith(".md") ? <Link key={i} to={at`/runbooks/${one.to.replace(/\.md$/, "")}`}>{one.text}</Link> : one.text,
      )}
    </>
  );
}
