// The report on a sub-agent's task: four fields, of which each begins a line. The program sets back the lines of a
// result that would pass for a field.

export interface Report {
  status: string;
  result: string;
  notes: string;
  stats: string;
}

const REPORT = /^Status: (?<status>[^\n]*)\nResult: (?<result>[^]*?)\nNotes: (?<notes>[^]*?)\nStats: (?<stats>[^\n]*)\s*$/;

/** Returns the fields of a report, or nothing when the text is none. */
export function parseReport(text: string): Report | undefined {
  return REPORT.exec(text)?.groups as Report | undefined;
}
