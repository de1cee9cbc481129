//! What the owner of a box orders, as frames for its agent.

use std::time::Instant;

use blastbox_wire::agent::{HostFrame, Stage};
use blastbox_wire::limits::{MAX_EXECS, OUTPUT_WINDOW};
use blastbox_wire::receipt::Output;

use super::{Driver, Running};
use crate::desk::Order;
use crate::outcome::Ending;
use crate::outlet::ExecEnd;
use crate::state::Event;
use crate::tools;

const EAGAIN: i32 = 11;

impl Driver {
    /// Takes no more orders. A command that was ordered and not looked at yet is over too: a launch may fail before anything else is heard.
    pub(super) fn refuse_the_rest(&mut self, ending: &Ending) {
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            if let Order::Exec { outlet, room, .. } = order {
                room.close();
                outlet.end(ExecEnd::BoxEnded(ending.clone()));
            }
        }
    }

    /// Counts what is printed from here on.
    fn forgive(&mut self) {
        let Output { stdout_bytes, stderr_bytes, .. } = std::mem::take(&mut self.log.tally.output);
        let printed = stdout_bytes.saturating_add(stderr_bytes);
        self.output_left = self.output_left.saturating_add(printed);
    }

    pub(super) fn obey(&mut self, order: Order) {
        let frame = match order {
            Order::Exec { spec, outlet, room, offer } => {
                if self.log.execs.len() >= MAX_EXECS || !self.happen(Event::ExecAsked) {
                    let stage = Stage::Admission;
                    outlet.end(ExecEnd::NotStarted { stage, errno: EAGAIN });
                    room.close();
                    return;
                }
                let (stdin_out, window, has_begun) = (0, OUTPUT_WINDOW, false);
                let running = Running { outlet, room, stdin_out, window, offer, errand: None, has_begun };
                self.log.execs.insert(spec.exec, running);
                if let Some(vigil) = &mut self.vigil {
                    vigil.begin(&self.house.stir, Instant::now());
                }
                HostFrame::Exec(*spec)
            }
            Order::Stdin { exec, bytes } => {
                let Some(running) = self.log.execs.get_mut(&exec) else { return };
                running.stdin_out =
                    running.stdin_out.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                HostFrame::Stdin { exec, bytes }
            }
            Order::StdinEnd { exec } if self.log.execs.contains_key(&exec) => HostFrame::StdinEnd { exec },
            Order::Resize { exec, rows, columns } if self.log.execs.contains_key(&exec) => {
                HostFrame::Resize { exec, rows, columns }
            }
            Order::Signal { exec, signal } if self.log.execs.contains_key(&exec) => {
                HostFrame::Signal { exec, signal }
            }
            Order::Answer { exec, call, answer } => {
                let Some(running) = self.log.execs.get_mut(&exec) else { return };
                let Some(tool) = running.offer.close(call) else { return };
                if answer.is_err() {
                    self.log.tally.failed(&tool);
                }
                tools::frame(exec, call, &answer)
            }
            Order::Farewell => {
                self.log.farewell = true;
                HostFrame::Farewell
            }
            Order::File { op, order } => return self.obey_file(op, order),
            Order::Ping(to) => return self.ping(to),
            Order::Look => return self.look_for_limits(),
            Order::Forgive => return self.forgive(),
            Order::Pause(to) => return self.ask_pause(Event::PauseAsked, to),
            Order::Resume(to) => return self.ask_pause(Event::ResumeAsked, to),
            Order::Sleep(to) => return self.put_to_sleep(to),
            // The command ended while the order was on its way.
            Order::StdinEnd { .. } | Order::Resize { .. } | Order::Signal { .. } => return,
        };
        self.send(&frame);
    }
}
