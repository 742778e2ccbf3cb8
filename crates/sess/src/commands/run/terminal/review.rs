//! Plan review: what the host does when a plan is ready. It asks the person, and only the person approves.

use console::Style;
use sess_app::{PlanText, ReviewPlan, agents::Request};
use sess_core::{plan::Verdict, run::Run};
use similar::TextDiff;

use super::{
    ask,
    chat::{Chat, Ended, Flow},
    editor::{Prompt, Typed},
    screen::Last,
};
use crate::commands::plan;

/// A plan of at most so many lines is shown as a whole, with what changed in it marked.
const WHOLE_LINES_MAX: usize = 120;

/// What the person says about a plan.
enum Said {
    Approve,
    Change(String),
    Later,
}

impl Chat {
    /// Asks about a plan that is ready, unless the person has put this revision off; then does what they say.
    pub async fn review(&mut self) -> anyhow::Result<Flow> {
        loop {
            let Some(session) = self.stored().await? else { return Ok(Flow::GoOn) };
            let Some(plan) = self.agents.plan_to_review(&session).await? else { return Ok(Flow::GoOn) };
            let revision = plan.plan.revision;
            if self.put_off.get(&session.id) == Some(&revision) {
                return Ok(Flow::GoOn);
            }
            self.show_plan(&plan).await?;
            let said = self.ask_about_plan().await;
            let (verdict, note) = match &said {
                Said::Approve => (Verdict::Approve, None),
                Said::Change(note) => (Verdict::RequestChanges, Some(note.clone())),
                Said::Later => {
                    self.put_off.insert(session.id.clone(), revision);
                    self.note("the plan stays ready: /review asks again");
                    return Ok(Flow::GoOn);
                }
            };
            let review = ReviewPlan { verdict, revision: Some(revision), note };
            if let Err(error) = self.agents.app().review_plan(&self.caller, &session, review).await {
                // Somebody wrote or reviewed it meanwhile, or nobody here may: not asked about again.
                self.put_off.insert(session.id.clone(), revision);
                return Err(error.into());
            }
            let is_executing = verdict == Verdict::Approve;
            if is_executing {
                self.print(Last::Talk, [done(&format!("plan revision {revision} approved"))]);
            }
            let Some(review) = self.agents.reviewed(&session).await? else { return Ok(Flow::GoOn) };
            let request = Request::review(session.into(), review);
            if request.agent != self.active {
                self.switch(request.agent.clone());
            }
            match self.turn(request).await? {
                Ended::Run(run) if is_executing => self.executed(&run).await?,
                Ended::Run(_) => {}
                Ended::Left(code) => return Ok(Flow::Leave(code)),
            }
        }
    }

    /// Calls the plan done, when the run that carried it out ended well.
    pub async fn executed(&mut self, run: &Run) -> anyhow::Result<()> {
        let Some(session) = self.stored().await? else { return Ok(()) };
        if self.agents.executed(&self.caller, &session, run).await? {
            self.print(Last::Talk, [done("the plan is done")]);
        }
        Ok(())
    }

    /// Shows a plan; what changed since the person saw it last is marked.
    pub async fn show_plan(&mut self, plan: &PlanText) -> anyhow::Result<()> {
        let Some(session) = self.stored().await? else { return Ok(()) };
        let revision = plan.plan.revision;
        let seen = self.shown.insert(session.id.clone(), revision).filter(|seen| *seen < revision);
        let dim = Style::new().dim();
        let frame = Style::new().cyan();
        let since = seen.map(|seen| format!(" · changes since revision {seen}")).unwrap_or_default();
        let state = plan.plan.state.replace('_', " ");
        let head = format!(
            "{} {}{}",
            frame.apply_to("╭─"),
            Style::new().bold().apply_to("Plan"),
            dim.apply_to(format!(" · revision {revision} · {state}{since}"))
        );
        self.print(Last::Plan, [head]);
        let gutter = frame.apply_to("│ ").to_string();
        match seen {
            None => {
                self.terminal.screen().join();
                self.show(&plan.content, &gutter);
            }
            Some(seen) => {
                let old = self.agents.app().plan_revision(&session, seen).await?.content;
                let rows = changes(&old, &plan.content);
                self.terminal.screen().join();
                self.print(Last::Text, rows.into_iter().map(|row| format!("{gutter}{row}")));
            }
        }
        self.terminal.screen().join();
        self.print(Last::Plan, [frame.apply_to("╰─").to_string()]);
        Ok(())
    }

    async fn ask_about_plan(&self) -> Said {
        let asked = self.terminal.ask().await;
        asked.forget_typed();
        let choices = [('a', "approve"), ('c', "request changes"), ('l', "later")];
        let said = loop {
            match ask::choose(&asked, &choices).await {
                Some('a') => break Said::Approve,
                Some('c') => {
                    match asked.read(Prompt::new("what to change: ", &Style::new().yellow())).await {
                        Typed::Line(note) if !note.trim().is_empty() => {
                            break Said::Change(note.trim().to_owned());
                        }
                        // Thought better of it: asked again.
                        Typed::Line(_) | Typed::Interrupted => {}
                        Typed::Ended => break Said::Later,
                    }
                }
                Some(_) | None => break Said::Later,
            }
        };
        asked.answered();
        said
    }
}

fn done(text: &str) -> String {
    format!("{} {text}", Style::new().green().apply_to("✓"))
}

/// Returns the difference between two revisions, coloured.
fn changes(old: &str, new: &str) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let is_short = old.lines().count().max(new.lines().count()) <= WHOLE_LINES_MAX;
    let context = if is_short { WHOLE_LINES_MAX } else { 3 };
    let text = diff.unified_diff().context_radius(context).missing_newline_hint(false).to_string();
    if text.is_empty() {
        return vec![Style::new().dim().apply_to("the same as before").to_string()];
    }
    text.lines().filter(|line| !(is_short && line.starts_with("@@"))).map(plan::coloured).collect()
}
