import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./button";

interface Props {
  open: boolean;
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** Buttons at its foot; Close is there by itself where none is given. */
  actions?: ComponentChildren;
  /** With it the content is a form: Enter in a field does it. */
  onSubmit?: () => void;
  wide?: boolean;
}

/** What needs an answer before anything else. Esc and a click beside it close it; the focus comes back to where it was. */
export function Dialog({ open, title, onClose, children, actions, onSubmit, wide }: Props) {
  const self = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = self.current;
    if (!dialog) return;
    if (open && !dialog.open) {
      const before = document.activeElement;
      dialog.showModal();
      return () => {
        if (before instanceof HTMLElement && before.isConnected) before.focus();
      };
    }
    if (!open && dialog.open) dialog.close();
    return;
  }, [open]);
  const inside = (
    <>
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <Button kind="quiet" small aria-label="Close" onClick={onClose}>
          <span aria-hidden="true">✕</span>
        </Button>
      </header>
      <div class="dialog-body">{children}</div>
      <footer class="dialog-foot">{actions ?? <Button onClick={onClose}>Close</Button>}</footer>
    </>
  );
  return (
    <dialog
      ref={self}
      class={wide ? "dialog dialog-wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClose={() => open && onClose()}
      onMouseDown={(event) => event.target === self.current && onClose()}
    >
      {open &&
        (onSubmit ? (
          <form
            class="dialog-inside"
            onSubmit={(event) => {
              event.preventDefault();
              onSubmit();
            }}
          >
            {inside}
          </form>
        ) : (
          <div class="dialog-inside">{inside}</div>
        ))}
    </dialog>
  );
}
