import type { ComponentChildren } from "preact";
import { place, requery } from "../router";
import { Button } from "./button";
import { Empty } from "./states";
import { cls } from "./types";

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers stand at the end. */
  end?: boolean;
  /** Takes what is left of the width. */
  wide?: boolean;
  /** Left out where there is little room. */
  spare?: boolean;
}

interface Props<T> {
  /** What the rows are, for those who hear the page. */
  caption: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  id: (row: T) => string;
  /** What is said when there is none: a sentence, or an Empty of one's own. */
  empty?: ComponentChildren;
  /** Marks some rows, by their ids; the first column gets boxes. */
  picked?: ReadonlySet<string>;
  onPick?: (picked: ReadonlySet<string>) => void;
  /** The cursor of the next page: buttons appear that put it into `?after=`. */
  next?: string | null;
}

/** Rows. The first column says which thing it is; on a phone every row becomes a card. */
export function Table<T>({ caption, columns, rows, id, empty, picked, onPick, next }: Props<T>) {
  if (!rows.length) {
    return (
      <>
        {typeof empty === "string" || !empty ? <Empty title={(empty as string) || "There is none."} /> : empty}
        <Pager next={next} />
      </>
    );
  }
  const all = !!picked && rows.every((row) => picked.has(id(row)));
  const pick = (ids: readonly string[], on: boolean): void => {
    const chosen = new Set(picked);
    for (const one of ids) on ? chosen.add(one) : chosen.delete(one);
    onPick?.(chosen);
  };
  return (
    <>
      <div class="table-frame" role="region" aria-label={caption} tabIndex={0}>
        <table class="table">
          <caption class="unseen">{caption}</caption>
          <thead>
            <tr>
              {onPick && (
                <th class="table-pick" scope="col">
                  <input type="checkbox" aria-label="All of this page" checked={all} onChange={(event) => pick(rows.map(id), event.currentTarget.checked)} />
                </th>
              )}
              {columns.map((column) => (
                <th key={column.title} scope="col" class={cls(column.end && "end", column.wide && "table-wide", column.spare && "table-spare")}>
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={id(row)} class={cls(picked?.has(id(row)) && "table-picked")}>
                {onPick && (
                  <td class="table-pick">
                    <input type="checkbox" aria-label={`Mark ${id(row)}`} checked={picked?.has(id(row)) ?? false} onChange={(event) => pick([id(row)], event.currentTarget.checked)} />
                  </td>
                )}
                {columns.map((column, i) => (
                  <td key={column.title} data-label={column.title} class={cls(column.end && "end", column.wide && "table-wide", column.spare && "table-spare", i === 0 && "table-first")}>
                    <span class="table-cell">{column.cell(row)}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Pager next={next} />
    </>
  );
}

/** Pages of a list, by the cursor in the address: back and forward are the browser's. */
export function Pager({ next, name = "after" }: { next?: string | null; name?: string }) {
  const later = place.value.query.has(name);
  if (!next && !later) return null;
  return (
    <nav class="pager" aria-label="Pages of this list">
      <Button small disabled={!later} onClick={() => requery({ [name]: null }, { replace: false })}>
        First page
      </Button>
      <Button small disabled={!next} onClick={() => next && requery({ [name]: next }, { replace: false })}>
        Next page
      </Button>
    </nav>
  );
}
