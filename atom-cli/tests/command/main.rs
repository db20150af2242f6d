//! All tests of the command in one program: it is linked once, and its tests keep all processors busy until the last
//! has ended. One module for each subject.

mod common;

mod annotate;
mod arp;
mod arp_page;
mod attach;
mod bad_program;
mod c_arguments;
mod c_reports;
mod c_tools;
mod cookbook;
mod debugger;
mod events;
mod exports;
mod first_steps;
mod guide;
mod install;
mod log;
mod options;
mod output;
mod page;
mod readme;
mod report;
mod roofline;
mod run;
mod sampling;
mod show;
mod timeline;
mod tool;
mod windows;
