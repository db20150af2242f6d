//! A graph that is made again with more procedures that stay in place is the graph that is made so at once.

use atom_core::ProcId;
use atom_core::cfg::seeds::FrameFacts;
use atom_core::cfg::{Cfg, Discovered, Kept, Returns, Status};
use atom_core::image::Image;

/// A part of the procedures that can move, with a reason to stay.
fn some_of(cfg: &Cfg, part: usize) -> Kept {
    let movable = cfg.procs.iter().filter(|p| p.is_movable());
    let chosen = movable.enumerate().filter(|(i, _)| i % part == 0);
    let kept = chosen.map(|(i, p)| (p.start, format!("number {i}")));
    kept.collect()
}

#[test]
fn discovery_serves_several_graphs() {
    // This test's own program has jump tables, exceptions and cold parts.
    let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
    let unwind = image.unwind_table().unwrap();
    let frames = FrameFacts::new(&unwind);
    let mut repeated = Discovered::new(&image, &frames, Returns::New);
    let mut kept = Kept::new();
    for part in [7, 3] {
        let graph = repeated.graph(&frames, &kept);
        assert!(graph.procs.len() > 500);
        kept.extend(some_of(&graph, part));
        repeated.take_back(graph);
    }
    let again = repeated.graph(&frames, &kept);
    let at_once = Discovered::new(&image, &frames, Returns::New).graph(&frames, &kept);
    assert!(kept.len() > 100);
    for (start, reason) in &kept {
        let proc = again.proc_at(*start).map(|p: ProcId| again.proc(p));
        assert_eq!(proc.unwrap().status, Status::Opaque(reason.clone()));
    }
    assert!(again.procs == at_once.procs);
    assert!(again.blocks == at_once.blocks);
    assert!(again.insts == at_once.insts);
    assert!(again.succs == at_once.succs);
    assert!(again.jump_tables == at_once.jump_tables);
    assert!(again.together == at_once.together);
    assert_eq!(again.text_references, at_once.text_references);
}
