import { useEffect, useState } from "preact/hooks";

interface Props {
  label: string;
  value: string;
  /** Told at Enter, and when the field is emptied. */
  onSearch: (text: string) => void;
  /** Told at every letter, for what is filtered here and now. */
  onInput?: (text: string) => void;
  placeholder?: string;
  autofocus?: boolean;
}

/** An exact search: Enter asks, Esc empties. `/` leads to the first on the page. */
export function Search({ label, value, onSearch, onInput, placeholder, autofocus }: Props) {
  const [text, set] = useState(value);
  useEffect(() => set(value), [value]);
  return (
    <form
      class="search"
      role="search"
      aria-label={label}
      onSubmit={(event) => {
        event.preventDefault();
        onSearch(text.trim());
      }}
    >
      <input
        type="search"
        class="input"
        data-search
        aria-label={label}
        placeholder={placeholder ?? label}
        value={text}
        autoFocus={autofocus}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => {
          const typed = event.currentTarget.value;
          set(typed);
          onInput?.(typed);
          if (!typed && value) onSearch("");
        }}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
      <kbd class="search-key" aria-hidden="true">/</kbd>
    </form>
  );
}
