//! The program `standin-gpu-plugin`: a device plugin for GPUs whose ids are given.

use clap::Parser;
use podrail_testkit::error::in_words;
use podrail_testkit::gpu_plugin::{Gpu, GpuPlugin};
use std::path::PathBuf;
use std::process::ExitCode;

/// Registers GPUs with a kubelet and answers its allocations with an environment variable.
#[derive(Debug, Parser)]
#[command(name = "standin-gpu-plugin", version)]
struct Cli {
    /// The kubelet's directory for plugins.
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    directory: PathBuf,
    /// Name of the resource.
    #[arg(long, default_value = "nvidia.com/gpu")]
    resource: String,
    /// Variable that holds the ids.
    #[arg(long, default_value = "NVIDIA_VISIBLE_DEVICES")]
    variable: String,
    /// CDI kind: each id is answered as a CDI name of it, too.
    #[arg(long)]
    cdi: Option<String>,
    /// ID, or ID@NUMA-NODE.
    #[arg(required = true)]
    gpus: Vec<Gpu>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Cli {
        directory,
        resource,
        variable,
        cdi,
        gpus,
    } = Cli::parse();
    let plugin = GpuPlugin {
        directory,
        resource,
        variable,
        cdi,
        gpus,
    };
    match plugin.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", in_words(&error));
            ExitCode::FAILURE
        }
    }
}
