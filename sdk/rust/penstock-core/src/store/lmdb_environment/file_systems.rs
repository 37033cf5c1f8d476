//! Which file systems lie behind a network.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What statfs(2) says of everything that a program serves, be it a disk or a network.
const FUSE: i64 = 0x6573_5546;

/// Programs that serve a network as files. Others (ntfs-3g, mergerfs, fuse-overlayfs, gocryptfs...) serve local disks.
const NETWORK_PROGRAMS: [&str; 34] = [
    "afp",
    "alluxio-fuse",
    "blobfuse",
    "blobfuse2",
    "ceph-fuse",
    "cifs",
    "cubefs",
    "curlftpfs",
    "cvmfs2",
    "davfs",
    "davfs2",
    "fuse_dfs",
    "gcsfuse",
    "glusterfs",
    "goofys",
    "google-drive-ocamlfuse",
    "gvfsd-fuse",
    "hdfs",
    "httpdirfs",
    "juicefs",
    "lizardfs",
    "mfs",
    "moosefs",
    "mount-s3",
    "mountpoint-s3",
    "nfs",
    "onedriver",
    "rclone",
    "s3fs",
    "saunafs",
    "seaweedfs",
    "smbnetfs",
    "sshfs",
    "weed",
];

/// The network file system with this number that `folder` is on; `None` on a local one.
pub(super) fn network_name(magic: i64, folder: &Path) -> io::Result<Option<String>> {
    if magic != FUSE {
        return Ok(name_of(magic).map(str::to_owned));
    }
    let device = fs::metadata(folder)?.dev();
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(program_behind(&mounts, &device).map(str::to_owned))
}

/// Magic numbers as in statfs(2).
const fn name_of(magic: i64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xfe53_4d42 => "SMB",
        0xff53_4d42 => "CIFS",
        0x0102_1997 => "9P",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x564c => "NCP",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        0x2003_0528 => "OrangeFS",
        _ => return None,
    })
}

/// The network program that serves a device, by the lines of proc(5)'s mountinfo: the third field is the device, and the
/// type stands behind a lone dash, as in `fuse.sshfs`.
fn program_behind<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    let program_of = |line: &'a str| {
        let (place, kind) = line.split_once(" - ")?;
        let is_it = place.split(' ').nth(2) == Some(device);
        let kind = kind.split(' ').next().filter(|_| is_it)?;
        Some(kind.split_once('.').map_or(kind, |(_, program)| program))
    };
    let program = mounts.lines().find_map(program_of)?;
    NETWORK_PROGRAMS.contains(&program).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0x0bd0_0bd0, "Lustre"),
            (0x7461_636f, "OCFS2"),
            (0x0116_1970, "GFS2"),
            (0x2003_0528, "OrangeFS"),
        ] {
            assert_eq!(name_of(magic), Some(name));
        }
        for (local, name) in [
            (0xef53, "ext4"),
            (0x0102_1994, "tmpfs"),
            (0x794c_7630, "overlay"),
        ] {
            assert_eq!(name_of(local), None, "{name}");
        }
    }

    #[test]
    fn behind_fuse_the_program_tells() {
        let mounts = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
40 27 0:51 / /mnt/far\\040away rw,nosuid shared:9 master:2 - fuse.sshfs me@host:/data rw,user_id=0
41 27 0:52 / /mnt/j rw - fuse.juicefs JuiceFS:vol rw
42 27 0:53 / /mnt/g rw - fuse.glusterfs server:/vol rw
43 27 0:54 / /mnt/pool rw - fuse.mergerfs a:b rw
44 27 8:17 / /mnt/usb rw - fuseblk /dev/sdb1 rw
45 27 0:55 / /mnt/own rw - fuse something rw
";
        let expected = [
            ("0:51", Some("sshfs")),
            ("0:52", Some("juicefs")),
            ("0:53", Some("glusterfs")),
            ("0:54", None),
            ("8:17", None),
            ("0:55", None),
            ("0:5", None),
            ("0:21", None),
        ];
        for (device, program) in expected {
            assert_eq!(program_behind(mounts, device), program, "{device}");
        }
    }

    #[test]
    fn a_folder_on_fuse_that_no_mount_names_is_let_through() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(network_name(FUSE, folder.path()).unwrap(), None);
        assert!(network_name(FUSE, &folder.path().join("none")).is_err());
        let nfs = network_name(0x6969, folder.path()).unwrap();
        assert_eq!(nfs.as_deref(), Some("NFS"));
    }
}
