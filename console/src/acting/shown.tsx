import { Table } from "../ui";

/** What an act counts, in a line. */
export function Counts({ counts }: { counts: Record<string, number | string> }) {
  const shown = Object.entries(counts).filter(([, number]) => number !== 0);
  if (!shown.length) return null;
  return (
    <ul class="act-counts">
      {shown.map(([label, number]) => (
        <li key={label}>
          <strong>{typeof number === "number" ? number.toLocaleString() : number}</strong> {label}
        </li>
      ))}
    </ul>
  );
}

interface Change {
  field: string;
  before: string | null;
  after: string | null;
}

/** The fields that an edit changes, as they were and as they will be. */
export function Changes({ changes }: { changes: Change[] }) {
  return (
    <Table
      caption="Fields that change"
      rows={changes}
      id={(one) => one.field}
      empty="Nothing changes."
      columns={[
        { title: "Field", cell: (one) => <code>{one.field}</code> },
        { title: "Before", wide: true, cell: (one) => (one.before === null ? <span class="muted">nothing</span> : <del>{one.before}</del>) },
        { title: "After", wide: true, cell: (one) => (one.after === null ? <span class="muted">nothing</span> : <ins>{one.after}</ins>) },
      ]}
    />
  );
}
