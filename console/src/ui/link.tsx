import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { go, href } from "../router";

interface Props {
  to: string;
  class?: string;
  current?: boolean;
  title?: string;
  onClick?: (event: TargetedMouseEvent<HTMLAnchorElement>) => void;
  "aria-label"?: string;
  children: ComponentChildren;
}

/** A link to a page of the console. With a modifier or another button it is the browser's own. */
export function Link({ to, current, children, onClick, ...rest }: Props) {
  const click = (event: TargetedMouseEvent<HTMLAnchorElement>): void => {
    onClick?.(event);
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a {...rest} href={href(to)} aria-current={current ? "page" : undefined} onClick={click}>
      {children}
    </a>
  );
}
