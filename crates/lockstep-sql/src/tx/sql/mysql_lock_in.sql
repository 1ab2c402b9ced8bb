{limit}INSERT INTO lockstep_mutex (`key`) VALUES ({key}) ON DUPLICATE KEY UPDATE `key` = {key}
