/** API paths that the browser follows by itself; all others are in the generated client. */
export const paths = {
  apiEvents: '/api/v1/events',
} as const;

export const datasetTabs = ['samples', 'splits', 'versions', 'snippet'] as const;
export type DatasetTab = (typeof datasetTabs)[number];
