import { Act } from "../acting";
import { toneOf, which, type Job } from "../acting/job";
import { at, useData } from "../api";
import { Badge, Facts, Figure, Figures, Notice, Page, Section, Time, count } from "../ui";
import type { PageProps } from "../routes";

export default function OneJob({ params }: PageProps) {
  const { service = "", id = "" } = params;
  const asked = useData<Job>(at`/jobs/${service}/${id}`, { every: 1_000, live: "jobs" });
  const job = asked.data;
  const target = { service, job: id };
  const gone = job ? job.done + job.refused : 0;
  return (
    <Page title={job ? job.title : "Job"} says={job ? `Of ${job.service}: ${which(job)}. It goes on when the console is restarted, and deals with nothing twice.` : "How far a job is."} data={asked}>
      {job && (
        <>
          <Notice
            tone={toneOf[job.state]}
            title={job.state}
            action={
              !job.ended && (
                <div class="job-acts">
                  {job.state === "running" && job.canary > 0 && !job.canary_passed && job.open > 0 && <Act name="job.resume" params={target} label="Do not wait" onDone={asked.refresh} />}
                  {job.state === "running" && <Act name="job.pause" params={target} label="Pause" onDone={asked.refresh} />}
                  {job.state === "paused" && <Act name="job.resume" params={target} label="Resume" kind="main" onDone={asked.refresh} />}
                  <Act name="job.cancel" params={target} label="Cancel the job" kind="danger" onDone={asked.refresh} />
                </div>
              )
            }
          >
            {job.says}
          </Notice>
          {job.total > 0 && <progress class="job-bar" value={gone} max={Math.max(job.total, gone)} aria-label={`${gone} of ${job.total}`} />}
          <Figures>
            <Figure label="Done" value={count(job.done)} says={job.total ? `of ${count(job.total)}${job.more ? "+" : ""}` : undefined} />
            <Figure label="Applied" value={count(job.applied)} tone={job.applied ? "good" : "neutral"} says="went well since" />
            <Figure label="Failed again" value={count(job.failed)} tone={job.failed ? "bad" : "neutral"} says={job.stop_after ? `stops after ${count(job.stop_after)}` : undefined} />
            <Figure label="Not run yet" value={count(job.open)} says="their outcome is not known" />
            <Figure label="Refused" value={count(job.refused)} tone={job.refused ? "warn" : "neutral"} says="did not fit any more" />
          </Figures>
          <Section title="What was pressed">
            <Facts
              items={[
                ["Act", <code>{job.act}</code>],
                ["Which", which(job)],
                job.last !== "0" && ["Up to number", job.last],
                ["By", job.by],
                ["Why", job.why],
                job.total > 0 && ["At most", `${job.rate} a second`],
                job.canary > 0 && ["First", `${count(job.canary)}${job.canary_passed ? ", passed" : ""}`],
                job.note !== "" && ["Note", job.note],
                ["Begun", <Time at={job.created_at} />],
                ["Last change", <Time at={job.changed_at} />],
                job.ended_at !== null && ["Ended", <Time at={job.ended_at} />],
                ["State", <Badge tone={toneOf[job.state]}>{job.state}</Badge>],
              ]}
            />
          </Section>
        </>
      )}
    </Page>
  );
}
