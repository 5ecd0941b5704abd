import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "posthouse-theme";

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system"; // storage may be forbidden
  }
}

export const theme = signal<Theme>(stored());

function show(chosen: Theme): void {
  const root = document.documentElement;
  if (chosen === "system") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", chosen);
}

show(theme.value);

export function choose(chosen: Theme): void {
  theme.value = chosen;
  show(chosen);
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // it holds until the page is closed
  }
}

addEventListener("storage", (event) => {
  if (event.key === KEY) show((theme.value = stored()));
});
