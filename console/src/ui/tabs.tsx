import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";
import { cls } from "./types";

export interface Tab {
  id: string;
  title: string;
  count?: string | number;
}

/** Several views of one thing. Arrows, Home and End walk through them. */
export function Tabs({ label, tabs, current, onPick, children }: { label: string; tabs: readonly Tab[]; current: string; onPick: (id: string) => void; children?: ComponentChildren }) {
  const list = useRef<HTMLDivElement>(null);
  const own = useId();
  const step = (event: KeyboardEvent): void => {
    const now = tabs.findIndex((tab) => tab.id === current);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const at = (next + tabs.length) % tabs.length;
    const tab = tabs[at];
    if (!tab) return;
    onPick(tab.id);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[at]?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={step}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${own}-${tab.id}`}
            aria-selected={tab.id === current}
            aria-controls={children === undefined ? undefined : `${own}-panel`}
            tabIndex={tab.id === current ? 0 : -1}
            class={cls("tab", tab.id === current && "tab-current")}
            onClick={() => onPick(tab.id)}
          >
            {tab.title}
            {tab.count !== undefined && <span class="tab-count">{typeof tab.count === "number" ? tab.count.toLocaleString("en") : tab.count}</span>}
          </button>
        ))}
      </div>
      {children !== undefined && (
        <div role="tabpanel" id={`${own}-panel`} aria-labelledby={`${own}-${current}`}>
          {children}
        </div>
      )}
    </>
  );
}
