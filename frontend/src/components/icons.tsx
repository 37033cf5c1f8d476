import type { ReactNode } from 'react';

interface IconProps {
  size?: number;
}

function icon(name: string, paths: ReactNode) {
  function Icon({ size = 18 }: IconProps) {
    return (
      <svg
        width={size}
        height={size}
        viewBox="0 0 24 24"
        fill="none"
        stroke="currentColor"
        strokeWidth={1.75}
        strokeLinecap="round"
        strokeLinejoin="round"
        aria-hidden="true"
        focusable="false"
      >
        {paths}
      </svg>
    );
  }
  Icon.displayName = name;
  return Icon;
}

export const DatasetsIcon = icon(
  'DatasetsIcon',
  <>
    <rect x="4" y="4" width="7" height="7" rx="1" />
    <rect x="13" y="4" width="7" height="7" rx="1" />
    <rect x="4" y="13" width="7" height="7" rx="1" />
    <rect x="13" y="13" width="7" height="7" rx="1" />
  </>,
);
export const LiveIcon = icon('LiveIcon', <path d="M3 12h4l3 7 4-14 3 7h4" />);
export const JobsIcon = icon('JobsIcon', <path d="M4 6h1M4 12h1M4 18h1M9 6h11M9 12h11M9 18h11" />);
export const SettingsIcon = icon(
  'SettingsIcon',
  <>
    <path d="M4 7h9M17 7h3M4 17h3M11 17h9" />
    <circle cx="15" cy="7" r="2" />
    <circle cx="9" cy="17" r="2" />
  </>,
);
export const SearchIcon = icon(
  'SearchIcon',
  <>
    <circle cx="11" cy="11" r="6" />
    <path d="m20 20-4.5-4.5" />
  </>,
);
export const PlusIcon = icon('PlusIcon', <path d="M12 5v14M5 12h14" />);
export const CloseIcon = icon('CloseIcon', <path d="M6 6l12 12M18 6 6 18" />);
export const CopyIcon = icon(
  'CopyIcon',
  <>
    <rect x="9" y="9" width="11" height="11" rx="2" />
    <path d="M15 9V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v7a2 2 0 0 0 2 2h3" />
  </>,
);
export const CheckIcon = icon('CheckIcon', <path d="m5 12 5 5L19 7" />);
export const AlertIcon = icon(
  'AlertIcon',
  <path d="M12 9v4M12 16.5v.01M10.3 4.3 2.7 17.5A2 2 0 0 0 4.4 20.5h15.2a2 2 0 0 0 1.7-3L13.7 4.3a2 2 0 0 0-3.4 0Z" />,
);
export const PreviousIcon = icon('PreviousIcon', <path d="m15 6-6 6 6 6" />);
export const NextIcon = icon('NextIcon', <path d="m9 6 6 6-6 6" />);
export const MaskIcon = icon(
  'MaskIcon',
  <>
    <rect x="4" y="4" width="16" height="16" rx="2" />
    <path d="M8 16c0-4 2-3 3-6s5-2 5 1-2 6-5 6-3 0-3-1Z" />
  </>,
);
export const ShuffleIcon = icon(
  'ShuffleIcon',
  <path d="M3 7h3c5 0 6 10 11 10h4M3 17h3c2 0 3.4-1.5 4.5-3.5M13.5 9c1-1.3 2-2 3.5-2h4M18 4l3 3-3 3M18 14l3 3-3 3" />,
);
export const TrashIcon = icon(
  'TrashIcon',
  <path d="M4 7h16M10 11v6M14 11v6M6 7l1 12a2 2 0 0 0 2 1h6a2 2 0 0 0 2-1l1-12M9 7V5a1 1 0 0 1 1-1h4a1 1 0 0 1 1 1v2" />,
);
export const OfflineIcon = icon(
  'OfflineIcon',
  <path d="M12 18v.01M9.2 14.8a4 4 0 0 1 5.6 0M6.3 12a8 8 0 0 1 3.2-2M17.7 12a8 8 0 0 0-1.5-1.1M3.5 9a12 12 0 0 1 4-2.6M20.5 9A12 12 0 0 0 11 5.6M3 3l18 18" />,
);
export const SunIcon = icon(
  'SunIcon',
  <>
    <circle cx="12" cy="12" r="4" />
    <path d="M12 3v1M12 20v1M3 12h1M20 12h1M5.6 5.6l.7.7M17.7 17.7l.7.7M5.6 18.4l.7-.7M17.7 6.3l.7-.7" />
  </>,
);
export const FolderIcon = icon(
  'FolderIcon',
  <path d="M4 6a1 1 0 0 1 1-1h4l2 2h8a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1Z" />,
);
export const LogoutIcon = icon(
  'LogoutIcon',
  <path d="M14 8V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v12a2 2 0 0 0 2 2h6a2 2 0 0 0 2-2v-2M9 12h12M18 9l3 3-3 3" />,
);
