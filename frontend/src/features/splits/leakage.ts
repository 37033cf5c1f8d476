import { formatCount } from '@/lib/format';

export interface LeakageProof {
  isClean: boolean;
  text: string;
}

interface ProofInput {
  report: Record<string, unknown>;
  groupBy: string | null | undefined;
  groupCount: number | null;
}

/** The proof line: how many groups and equal files stand in more than one subset. */
export function leakageProof({ report, groupBy, groupCount }: ProofInput): LeakageProof {
  const groups = countOf(report.shared_groups);
  const content = countOf(report.shared_content);
  const parts: string[] = [];
  if (groupBy != null && groups !== null) {
    const of = groupCount === null ? '' : ` of ${formatCount(groupCount)}`;
    parts.push(`${formatCount(groups)}${of} ${groupBy}s`);
  }
  if (content !== null) parts.push(`${formatCount(content)} equal files`);
  const isClean = (groups ?? 0) === 0 && (content ?? 0) === 0;
  if (parts.length === 0) return { isClean: false, text: 'No leakage proof in the report.' };
  const verdict = isClean ? 'No leak' : 'Leak';
  return { isClean, text: `${verdict}: ${parts.join(' and ')} shared between subsets.` };
}

/** Reports count either with a number or with the list of what is shared. */
function countOf(value: unknown): number | null {
  if (typeof value === 'number') return value;
  if (Array.isArray(value)) return value.length;
  if (typeof value === 'object' && value !== null) {
    const { count } = value as { count?: unknown };
    return typeof count === 'number' ? count : null;
  }
  return null;
}
