import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { cls } from "./types";

export interface Item {
  label: string;
  onPick: () => void;
  danger?: boolean;
  disabled?: boolean;
  /** Marked, as the one that is chosen. */
  on?: boolean;
}

/** Things to press that have no room. Arrows walk, Esc closes and the focus goes back. */
export function Menu({ label, items, children, up }: { label: string; items: readonly Item[]; children?: ComponentChildren; up?: boolean }) {
  const [open, set] = useState(false);
  const self = useRef<HTMLDivElement>(null);
  const id = useId();
  const entries = (): HTMLElement[] => [...(self.current?.querySelectorAll<HTMLElement>("[role^=menuitem]:not(:disabled)") ?? [])];
  useEffect(() => {
    if (!open) return;
    entries()[0]?.focus();
    const away = (event: Event): void => {
      if (!self.current?.contains(event.target as Node)) set(false);
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("focusin", away);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("focusin", away);
    };
  }, [open]);
  const close = (): void => {
    set(false);
    self.current?.querySelector<HTMLElement>("[aria-haspopup]")?.focus();
  };
  const key = (event: KeyboardEvent): void => {
    if (!open) {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        set(true);
      }
      return;
    }
    const all = entries();
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (next !== undefined && all.length) {
      event.preventDefault();
      all[(next + all.length) % all.length]?.focus();
    }
  };
  return (
    <div class="menu" ref={self} onKeyDown={key}>
      <button type="button" class="button button-plain button-small" aria-haspopup="menu" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => set(!open)}>
        {children ?? label} <span aria-hidden="true" class="menu-mark">▾</span>
      </button>
      {open && (
        <div class={cls("menu-list", up && "menu-up")} role="menu" id={id} aria-label={label}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role={item.on === undefined ? "menuitem" : "menuitemradio"}
              aria-checked={item.on}
              class={cls("menu-item", item.danger && "tone-bad")}
              disabled={item.disabled}
              tabIndex={-1}
              onClick={() => {
                close();
                item.onPick();
              }}
            >
              {item.label}
              {item.on && <span aria-hidden="true">✓</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
