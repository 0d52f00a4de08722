// Every view of the dashboard: its place in the address, its name, and the component that draws it.
import type { ComponentType } from 'preact';
import type { OperationId } from '#protocol/people/rights.ts';
import { useMay, useOwnToken } from '../data/api.ts';
import type { IconName } from '../parts/labels.tsx';
import { ApprovalsView } from '../views/approvals/approvals-view.tsx';
import { CostView } from '../views/cost/cost-view.tsx';
import { HelpView } from '../views/help/help-view.tsx';
import { ModelsView } from '../views/models/models-view.tsx';
import { OverviewView } from '../views/overview/overview-view.tsx';
import { PeopleView } from '../views/people/people-view.tsx';
import { SessionsView } from '../views/sessions/sessions-view.tsx';
import { SettingsView } from '../views/settings/settings-view.tsx';
import { WorkersView } from '../views/workers/workers-view.tsx';
import type { Place } from './place.ts';

export interface View {
  /** First part of the address behind `#/`. */
  readonly id: string;
  readonly title: string;
  readonly icon: IconName;
  readonly component: ComponentType<{ readonly place: Place }>;
  /** Shown on a server that requires a token, to those who may call it; absent = to all. */
  readonly operation?: OperationId;
}

/** In the order of the navigation; the first is what an empty address shows. */
const VIEWS: readonly View[] = [
  { id: 'overview', title: 'Overview', icon: 'overview', component: OverviewView },
  { id: 'sessions', title: 'Sessions', icon: 'sessions', component: SessionsView },
  { id: 'approvals', title: 'Approvals', icon: 'approvals', component: ApprovalsView },
  { id: 'workers', title: 'Workers', icon: 'worker', component: WorkersView },
  { id: 'cost', title: 'Cost', icon: 'cost', component: CostView },
  { id: 'models', title: 'Models', icon: 'models', component: ModelsView },
  { id: 'people', title: 'People', icon: 'people', component: PeopleView, operation: 'listTokens' },
  { id: 'settings', title: 'Settings', icon: 'settings', component: SettingsView },
  { id: 'help', title: 'Help', icon: 'help', component: HelpView },
];

/** The views of the person. */
export function useViews(): readonly View[] {
  const may = useMay();
  const { required } = useOwnToken();
  return VIEWS.filter(({ operation }) => operation === undefined || (required && may(operation)));
}
