// Workers of a turn as lanes over its time: when each ran, and when its planner read the result.
import { duration } from '#dashboard/format/format.ts';
import { formatPlace } from '#dashboard/shell/place.ts';
import type { Lane } from './live/lanes.ts';

/** @param from, length, until of the timeline, Unix milliseconds */
export function WorkerLanes(props: {
  readonly lanes: readonly Lane[];
  readonly from: number;
  readonly length: number;
  readonly until: number;
}) {
  if (props.lanes.length === 0) return null;
  return (
    <ol class="lanes" aria-label="Workers">
      {props.lanes.map((lane) => (
        <LaneRow key={lane.worker_session_id} lane={lane} {...props} />
      ))}
    </ol>
  );
}

function LaneRow(props: {
  readonly lane: Lane;
  readonly from: number;
  readonly length: number;
  readonly until: number;
}) {
  const { lane, from, length, until } = props;
  const end = lane.end ?? until;
  const place = (at: number) => Math.min(100, Math.max(0, ((at - from) / length) * 100));
  const left = Math.min(place(lane.start), 99.7);
  const width = Math.max(0.3, place(end) - left);
  return (
    <li class={`lane${lane.failed ? ' failed' : ''}${lane.end === null ? ' running' : ''}`}>
      <a class="lane-label" href={formatPlace('sessions', lane.worker_session_id)} title={lane.label}>
        {lane.label}
      </a>
      <span class="lane-track" aria-hidden="true">
        <span class="lane-run" style={{ left: `${left}%`, width: `${width}%` }} />
        {lane.delivered !== null && (
          <>
            <span class="lane-wait" style={{ left: `${left + width}%`, right: `${100 - place(lane.delivered.at)}%` }} />
            <span class="lane-delivered" style={{ left: `${place(lane.delivered.at)}%` }} />
          </>
        )}
      </span>
      <span class="lane-text quiet">{describeLane(lane, end)}</span>
    </li>
  );
}

function describeLane({ start, failed, delivered, end: ended }: Lane, end: number): string {
  if (ended === null) return `running for ${duration(end - start)}`;
  const ran = `${failed ? 'failed after' : 'ran'} ${duration(end - start)}`;
  if (delivered === null) return ran;
  return `${ran}, delivered to step ${delivered.step}`;
}
