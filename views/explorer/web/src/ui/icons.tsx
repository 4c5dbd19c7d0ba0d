// Icons as paths in a box of 16.

const PATHS = {
  close: "M4 4l8 8M12 4l-8 8",
  pin: "M8 2v8M4.5 6.5L8 10l3.5-3.5M3 13.5h10",
  sun: "M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8L13 13M13 3l-1.2 1.2M4.2 11.8L3 13",
  moon: "M13 9.6A5.6 5.6 0 016.4 3 5.6 5.6 0 1013 9.6z",
  fit: "M2 6V2.5h3.5M14 6V2.5h-3.5M2 10v3.5h3.5M14 10v3.5h-3.5",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  search: "M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.4 10.4L14 14",
  chevron: "M6 4l4 4-4 4",
  play: "M5 3.2l7.5 4.8L5 12.8z",
  pause: "M5 3v10M11 3v10",
  expand: "M4 6l4-4 4 4M4 10l4 4 4-4",
  collapse: "M4 2l4 4 4-4M4 14l4-4 4 4",
  help: "M5.8 6a2.2 2.2 0 114 1.3c-.9.9-1.8 1.2-1.8 2.4M8 12.4v.2",
  warn: "M8 2.2L14.4 13.4H1.6zM8 6.6v3M8 11.4v.2",
  graph: "M8 2v3M8 11v3M4 5h8v6H4z",
  tree: "M3 3.5h10M6 8h7M6 12.5h7",
  panels: "M2.5 13V8M6.2 13V3.5M9.8 13V6M13.5 13V9.5",
  live: "M8 6.4a1.6 1.6 0 100 3.2 1.6 1.6 0 000-3.2zM4.6 4.6a4.8 4.8 0 000 6.8M11.4 4.6a4.8 4.8 0 010 6.8",
  target: "M8 3.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM8 1v3M8 12v3M1 8h3M12 8h3",
} as const;
export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** A tap in a flame's colours: the mark of the page. */
export function Logo() {
  return (
    <svg class="logo" width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
      <path d="M16 2C9 10 6 14 6 20a10 10 0 0020 0c0-3-1-5.5-3-8-.6 2-1.6 3.3-3 4 .6-5-.7-9.6-4-14z" class="logo-outer" />
      <path d="M16 15c-3 3.4-4.4 5.4-4.4 7.8a4.4 4.4 0 008.8 0c0-2.4-1.4-4.4-4.4-7.8z" class="logo-inner" />
    </svg>
  );
}
