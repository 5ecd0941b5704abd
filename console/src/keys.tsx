// The keyboard: `/` searches, `g` and a letter goes to a page, `r` asks again, `?` tells all of it.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { changed } from "./api";
import { go } from "./router";
import { routes } from "./routes";
import { Dialog } from "./ui";

const helping = signal(false);
const WITHIN = 1_200;

/** Tell which keys there are. */
export const help = (): void => void (helping.value = true);

const typing = (target: EventTarget | null): boolean => target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

function search(): void {
  const field = document.querySelector<HTMLInputElement>("main [data-search]");
  if (field) {
    field.focus();
    field.select();
  } else go("/events");
}

export function useKeys(): void {
  useEffect(() => {
    let going = 0;
    const press = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      const after = going && event.timeStamp - going < WITHIN;
      going = 0;
      if (after) {
        const route = routes.find((one) => one.key === event.key);
        if (route) {
          event.preventDefault();
          go(route.path);
        }
        return;
      }
      const what = { "/": search, "?": help, r: () => changed("*") }[event.key];
      if (event.key === "g") going = event.timeStamp;
      else if (what) {
        event.preventDefault();
        what();
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}

export function Help() {
  const lines: [string[], string][] = [
    [["/"], "Search"],
    [["r"], "Ask for the newest figures"],
    [["Esc"], "Close what is open"],
    [["?"], "This"],
    ...routes.filter((one) => one.key).map((one): [string[], string] => [["g", one.key ?? ""], one.title]),
  ];
  return (
    <Dialog open={helping.value} title="Keys" onClose={() => (helping.value = false)}>
      <dl class="keys">
        {lines.map(([keys, what]) => (
          <div key={what}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
